"""One campus of two buildings in every format that an import reads, the overlay that completes it, and one model."""

from __future__ import annotations

import json

HOSTS = {"east-leaf1": (1, 4), "east-leaf2": (5, 8), "west-leaf1": (1, 4), "west-leaf2": (5, 8)}

SLURM_YAML = """---
- topology: campus
  cluster_default: true
  tree:
    switches:
      - switch: east-spine
        children: east-leaf[1-2]
      - switch: west-spine
        children: west-leaf[1-2]
      - switch: east-leaf1
        nodes: e[01-04]
      - switch: east-leaf2
        nodes: e[05-08]
      - switch: west-leaf1
        nodes: w[01-04]
      - switch: west-leaf2
        nodes: w[05-08]
- topology: spare
  cluster_default: false
  flat: true
"""

SLURM_CONF = """# the same tree
SwitchName=east-spine Switches=east-leaf[1-2]
switchname=west-spine switches=west-leaf[1-2] LinkSpeed=400
SwitchName=east-leaf1 Nodes=e[01-04]   # first rack
SwitchName=east-leaf2 Nodes=e[05-08]
SwitchName=west-leaf1 \\
    Nodes=w[01-04]
SwitchName=west-leaf2 Nodes=w[05-08]
"""


def _each_host() -> list[tuple[str, str, str]]:
    """Name, leaf and spine of every host."""
    return [
        (f"{leaf[0]}{number:02}", leaf, f"{leaf[:4]}-spine")
        for leaf, (first, last) in HOSTS.items()
        for number in range(first, last + 1)
    ]


TOPOGRAPH = json.dumps(
    {
        "instances": [
            {"id": host, "network_layers": [leaf, spine], "labels": {"example.com/gpu-product": "H100"}}
            for host, leaf, spine in _each_host()
        ]
    },
    indent=1,
)

KUEUE_TOPOLOGY = """apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata:
  name: campus
spec:
  levels:
  - nodeLabel: example.com/spine
  - nodeLabel: example.com/leaf
  - nodeLabel: kubernetes.io/hostname
"""


def node(host: str, leaf: str, spine: str, *, gpus: int = 8) -> str:
    return f"""---
apiVersion: v1
kind: Node
metadata:
  name: {host}
  labels:
    kubernetes.io/hostname: {host}
    example.com/leaf: {leaf}
    example.com/spine: {spine}
spec: {{}}
status:
  capacity: {{cpu: "96", nvidia.com/gpu: "8"}}
  allocatable: {{cpu: "95", nvidia.com/gpu: "{gpus}"}}
  conditions:
  - {{type: Ready, status: "True", reason: KubeletReady}}
"""


KUEUE_NODES = "".join(node(*host) for host in _each_host())

OVERLAY = """name: campus
source: site survey of October 2026
levels:
  - {level: tier-0, place: rack}
  - {level: tier-1, place: zone, uplink_bytes_per_s: 1.6e12}
places:
  - {id: park, level: region}
  - {id: east, level: building, parent: park, contains: [east-spine]}
  - {id: west, level: building, parent: park, contains: ["west-*"]}
uplinks:
  - {match: [west-spine], uplink: {oversubscription: 4, latency_s: 8e-6, planes: 4}}
hosts:
  - {match: ["e[01-08]"], gpu: H100-SXM-80G, gpus_per_host: 8, nic_bytes_per_s: 5e10, usd_per_gpu_hour: 2.5}
  - {match: ["*"], gpu: B200-SXM, gpus_per_host: 8, nic_bytes_per_s: 1e11}
links:
  - {between: [east, west], capacity_bytes_per_s: 6.4e12, distance_km: 100, loss_probability: 1e-6, usd_per_gb: 0.01}
"""
KUEUE_OVERLAY = OVERLAY.replace("tier-0", "example.com/leaf").replace("tier-1", "example.com/spine")

LINKS = """from_place,to_place,capacity_bytes_per_s,distance_km,load_balancing,loss_probability
east,west,6.4e12,100,ecmp|spray,1e-6
east,north,3.2e12,40,,
"""
LINKS_OVERLAY = """levels: [{level: site, place: building}]
pools:
  - {id: e, place: east, gpu: H100-SXM-80G, num_hosts: 64, nic_bytes_per_s: 5e10}
  - {id: w, place: west, gpu: H100-SXM-80G, num_hosts: 64, nic_bytes_per_s: 5e10}
  - {id: n, place: north, gpu: H100-SXM-80G, num_hosts: 32, nic_bytes_per_s: 5e10}
links:
  - {among: building, capacity_bytes_per_s: 1.6e12, distance_km: 120}
"""

TOPOLOGIES: dict[str, tuple[list[tuple[str, bytes]], tuple[str, bytes]]] = {
    "topograph": ([("graph.json", TOPOGRAPH.encode())], ("overlay.yaml", OVERLAY.encode())),
    "slurm-yaml": ([("topology.yaml", SLURM_YAML.encode())], ("overlay.yaml", OVERLAY.encode())),
    "slurm-topoconf": ([("topoconf.txt", SLURM_YAML.encode())], ("overlay.yaml", OVERLAY.encode())),
    "slurm-conf": ([("topology.conf", SLURM_CONF.encode())], ("overlay.yaml", OVERLAY.encode())),
    "kueue": (
        [("kueue.yaml", KUEUE_TOPOLOGY.encode()), ("nodes.yaml", KUEUE_NODES.encode())],
        ("overlay.yaml", KUEUE_OVERLAY.encode()),
    ),
    "links-csv": ([("links.csv", LINKS.encode())], ("overlay.yaml", LINKS_OVERLAY.encode())),
}

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": True,
    "vocab_size": 128256,
}  # fmt: skip
