#!/bin/bash
# for torchrun PyTorch 2.1 to 2.13
# needs: the script started on every host, with the trainer's command as arguments: -m torchtitan.train ...
# needs: host names as `hostname` prints them, in full or up to the first dot
# not expressed: restarts: node ranks are fixed, an elastic rendezvous would number the nodes as they come
# not expressed: degrees, schedule and transport: see the torchtitan-args and nccl-env exports
set -euo pipefail
case "${ISTHMUS_HOST:-$(hostname)}" in
  east-node-0 | east-node-0.*) node_rank=0 ;;
  west-node-0 | west-node-0.*) node_rank=1 ;;
  east-node-1 | east-node-1.*) node_rank=2 ;;
  west-node-1 | west-node-1.*) node_rank=3 ;;
  *) echo "this host is not in the plan: set ISTHMUS_HOST to its name there" >&2; exit 1 ;;
esac
exec torchrun --nnodes=4 --nproc-per-node=8 --node-rank="$node_rank" \
  --master-addr="${MASTER_ADDR:-east-node-0}" --master-port="${MASTER_PORT:-29500}" "$@"
