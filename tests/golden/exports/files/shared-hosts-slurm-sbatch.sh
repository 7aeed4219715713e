#!/bin/bash
#SBATCH --job-name=isthmus
#SBATCH --nodes=3
#SBATCH --ntasks=16
#SBATCH --nodelist=east-node-0,west-node-0,east-node-1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
# for Slurm 20.02 to 26.11
# needs: one Slurm cluster that sees all the hosts
# needs: the slurm-hostfile export beside it as hosts.txt
# needs: the trainer's command as arguments: sbatch THIS_FILE python train.py ...
# needs: your --time, --partition and --account before THIS_FILE, where the site asks for them
# not expressed: topology requests (--switches): the host list decides
# not expressed: topology/block: without --segment it refuses hosts of several blocks where one block has as many (isthmus bundle --block-topology, or --segment=1 before THIS_FILE)
# not expressed: degrees, schedule and transport: see the exports for the trainer
set -euo pipefail
export SLURM_HOSTFILE="${ISTHMUS_HOSTFILE:-hosts.txt}"
if [ "$(wc -l < "$SLURM_HOSTFILE")" -ne 16 ]; then
  echo "$SLURM_HOSTFILE must have 16 lines, one per rank" >&2
  exit 1
fi
export MASTER_ADDR="$(head -n 1 "$SLURM_HOSTFILE")"
export MASTER_PORT="${MASTER_PORT:-29500}"
srun --ntasks=16 --distribution=arbitrary --kill-on-bad-exit=1 bash -c \
  'export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"; exec "$@"' rank "$@"
