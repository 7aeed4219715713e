"""Packaged constants of the efficiency curves, one profile per generation of scale-up domains, each fitted once.

`benchmarks/fit_fabrics.py` refits them and prints errors on the fitted rows and on rows held out.
"""

from solver.network.efficiency import EfficiencyCurve, FabricProfile, ShortProtocol

MIB = float(2**20)

_VTRAIN = "nccl-tests out-of-place all-reduce sweeps in the vTrain artifact (VIA-Research/vTrain, MIT)"
ML_ENGINEERING = "sweeps in stas00/ml-engineering, network/README.md"
SIMAI = "fractions of line rate in aliyun/SimAI, inputs/ratio/nic_ratio.csv and ata_ratio.csv"

A100_NVLINK = FabricProfile(
    name="NVLink 3, 8 GPUs",
    line_bytes_per_s=300e9,
    curves={
        "*": EfficiencyCurve(
            base_s=24e-6,
            hop_s=1.5e-6,
            fill_s=3.35e-6,
            plateau=((2, 0.844),),
            rank_penalty=0.406,
            short=ShortProtocol(below_bytes=4 * MIB, base_s=36.2e-6, hop_s=3.76e-6, rate_fraction=100.0),
        )
    },
    source=_VTRAIN,
)

# Hybrid cube mesh: NCCL finds 1, 2, 4, -, 2, 4 and 6 rings among 2..8 GPUs; five GPUs fall back to a mixed ring.
V100_NVLINK = FabricProfile(
    name="NVLink 2 hybrid cube mesh, 8 GPUs",
    line_bytes_per_s=150e9,
    curves={
        "*": EfficiencyCurve(
            base_s=16e-6,
            hop_s=4.34e-6,
            fill_s=0.0,
            plateau=((2, 0.152), (3, 0.304), (4, 0.578), (5, 0.255), (6, 0.307), (7, 0.588), (8, 0.912)),
        )
    },
    source=_VTRAIN,
)

_RING = EfficiencyCurve(base_s=24e-6, hop_s=1.5e-6, fill_s=3.35e-6, plateau=((8, 0.810),))

# In-network reduction (NVLS) from 2 MiB on lifts the bus bandwidth of an all-reduce above the line rate of one GPU.
HOPPER_NVLINK = FabricProfile(
    name="NVLink 4 with NVLS, 8 GPUs",
    line_bytes_per_s=450e9,
    curves={
        "all_reduce": EfficiencyCurve(
            base_s=37.2e-6,
            hop_s=0.0,
            fill_s=5.44e-6,
            plateau=((2, 1.11),),
            short=ShortProtocol(below_bytes=2 * MIB, base_s=38.9e-6, hop_s=0.0, rate_fraction=0.577),
        ),
        "ring": _RING,
        "*": _RING,
    },
    source=f"{ML_ENGINEERING} (8x H200); rings: latency terms of NVLink 3, plateau of the H200 ring rows",
)

BLACKWELL_NVLINK = FabricProfile(
    name="NVLink 5 with NVLS, 8 GPUs",
    line_bytes_per_s=900e9,
    curves={
        "all_reduce": EfficiencyCurve(
            base_s=69.4e-6,
            hop_s=0.0,
            fill_s=9.89e-6,
            plateau=((2, 0.953),),
            short=ShortProtocol(below_bytes=2 * MIB, base_s=47.9e-6, hop_s=0.0, rate_fraction=0.734),
        ),
        "ring": _RING,
        "*": _RING,
    },
    source=f"{ML_ENGINEERING} (8x B200); rings: as NVLink 4",
)

# Every pair has its own 64 GB/s link, so n GPUs use n - 1 of the 7 links of each.
MI300X_XGMI = FabricProfile(
    name="xGMI full mesh, 8 GPUs",
    line_bytes_per_s=448e9,
    curves={"*": EfficiencyCurve(base_s=24e-6, hop_s=1.5e-6, fill_s=3.35e-6, plateau=((2, 0.1068), (8, 0.7)))},
    source=f"{ML_ENGINEERING} (8x MI300X, plateaus; latency terms of NVLink 3)",
)

# NVLink of the H800. Ratios do not say the line rate: 200 GB/s only makes seconds of bytes.
SIMAI_NVLINK = FabricProfile(
    name="NVLink of 200 GB/s, 8 GPUs",
    line_bytes_per_s=200e9,
    curves={
        "*": EfficiencyCurve(base_s=101e-6, hop_s=0.0, fill_s=2.57e-6, plateau=((8, 0.803),)),
        "all_to_all": EfficiencyCurve(base_s=28.3e-6, hop_s=0.0, fill_s=5.75e-6, plateau=((8, 0.794),)),
    },
    source=SIMAI,
)

# Up to which rate of a domain a generation is taken: between its own rate (150, 200, 300, 450 GB/s) and the next one's.
_SCALE_UP_BY_RATE = ((175e9, V100_NVLINK), (250e9, SIMAI_NVLINK), (350e9, A100_NVLINK), (600e9, HOPPER_NVLINK))


def scale_up_profile(scale_up_bytes_per_s: float, *, full_mesh: bool = False) -> FabricProfile:
    """Profile of the generation that a scale-up rate belongs to, or of a mesh of links from GPU to GPU.

    Pass the domain's own rate as `line_rate` when evaluating it.
    >>> scale_up_profile(450e9).name, scale_up_profile(900e9).name
    ('NVLink 4 with NVLS, 8 GPUs', 'NVLink 5 with NVLS, 8 GPUs')
    """
    if full_mesh:
        return MI300X_XGMI
    for limit, profile in _SCALE_UP_BY_RATE:
        if scale_up_bytes_per_s <= limit:
            return profile
    return BLACKWELL_NVLINK
