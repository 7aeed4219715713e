"""Profiles of measured scale-out fabrics and clouds, each fitted once: what the accuracy of the curves rests on.

The planner takes scale-out rates from the software stack and the link graph instead. `fit_fabrics.py` refits these.
"""

from solver.network.efficiency import EfficiencyCurve, FabricProfile

_ML_ENGINEERING = "sweeps in stas00/ml-engineering, network/README.md"
_SIMAI = "fractions of line rate in aliyun/SimAI, inputs/ratio/nic_ratio.csv and ata_ratio.csv"
_SAILOR = "point-to-point curves in eth-easl/sailor, providers/multizone_bandwidths.json"

# Ratios do not say the line rate: 400 GB/s per node only makes seconds of bytes. A ring pays 35 us per node: network
# hop and the hops inside the node. All-to-all loses plateau to incast.
ROCE = FabricProfile(
    name="RoCE, 8 cards of 400 Gb/s per node",
    line_bytes_per_s=400e9,
    curves={
        "*": EfficiencyCurve(base_s=0.0, hop_s=35.2e-6, fill_s=0.0, plateau=((2, 0.972),)),
        "all_to_all": EfficiencyCurve(
            base_s=17.2e-6, hop_s=0.0, fill_s=0.285e-6, plateau=((2, 0.828), (4, 0.966), (8, 0.943), (16, 0.892))
        ),
    },
    source=_SIMAI,
)

EFA = FabricProfile(
    name="EFA, 8 x 400 Gb/s per node",
    line_bytes_per_s=400e9,
    curves={
        "*": EfficiencyCurve(base_s=0.0, hop_s=49.1e-6, fill_s=16.5e-6, plateau=((2, 1.0),)),
        "tree": EfficiencyCurve(base_s=0.0, hop_s=49.1e-6, fill_s=16.5e-6, plateau=((2, 0.825),)),
    },
    source=f"{_ML_ENGINEERING} (4x8 B200 P6 sweep; tree: 4x8 H200 p5en)",
)

SLINGSHOT = FabricProfile(
    name="Slingshot-11, 4 x 200 Gb/s per node",
    line_bytes_per_s=100e9,
    curves={"*": EfficiencyCurve(base_s=0.0, hop_s=0.0, fill_s=0.6e-6, plateau=((2, 0.95),))},
    source=_SAILOR,
)

# Rate that a virtual machine reaches inside its region; the fill of one stream is shared by one stream per GPU.
_CLOUD_VM_BYTES_PER_S = {
    "1xA100-40": 2.01e9,
    "2xA100-40": 3.75e9,
    "4xA100-40": 6.54e9,
    "1xV100-16": 1.48e9,
    "2xV100-16": 2.04e9,
    "4xV100-16": 5.59e9,
}
_CLOUD_CROSS_REGION_BYTES_PER_S = 0.733e9  # of a virtual machine, whatever its size


def cloud_vm(kind: str) -> FabricProfile | None:
    """TCP between two virtual machines of a kind, inside a region ("*") and across regions; None for an unknown kind.

    >>> cloud_vm("4xA100-40").line_bytes_per_s, cloud_vm("9xT4")
    (6540000000.0, None)
    """
    rate = _CLOUD_VM_BYTES_PER_S.get(kind)
    if rate is None:
        return None
    streams = int(kind.split("x")[0])
    across = _CLOUD_CROSS_REGION_BYTES_PER_S / rate
    return FabricProfile(
        name=f"cloud network, {kind}",
        line_bytes_per_s=rate,
        curves={
            "*": EfficiencyCurve(base_s=0.0, hop_s=0.0, fill_s=69.8e-6 / streams, plateau=((2, 1.0),)),
            "cross_region": EfficiencyCurve(base_s=0.0, hop_s=0.0, fill_s=2.04e-3 / streams, plateau=((2, across),)),
        },
        source=_SAILOR,
    )
