"""A launch folder has every file that starts the job, each with its digest, in words that its target knows."""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import re
import shlex
import subprocess
import zipfile
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from app.exporters.launch.bundle import bundle, changed_files, zipped
from app.exporters.launch.nemo_job import model_fields, settings_of
from app.exporters.launch.options import Launch
from app.exporters.launch.trainers import TRAINERS
from app.exporters.replay_case import CASE_FILE, MAX_RANKS, ReplayCase
from app.exporters.target import SchedulerName, TrainerName
from app.faults import Refused
from models.catalogue import entry_names, named_entry
from models.plan import Plan
from models.request import PlanRequest
from models.workload import Architecture, Precision
from tests.build_exports import wide_plan
from tests.unit.app.exporters.test_binding import nameless
from tests.unit.app.exporters.test_megatron import parsed

HOSTS = "east-pool=e[1-3]\nwest-pool=w[1-2]"
LOCAL = ("pytorch", "local")
PAIRS = [pair for pair in product(get_args(TrainerName), get_args(SchedulerName)) if len({*pair, *LOCAL}) in (2, 4)]
FIELDS = json.loads((Path(__file__).parent / "nemo_fields.json").read_text())


def job(name: str, crossing: str = "dp_out") -> tuple[Plan, PlanRequest]:
    """The nameless whole-host plan with a model of the catalogue."""
    plan, request = nameless(crossing)
    architecture = Architecture.model_validate(named_entry("models", name))
    workload = request.workload.model_copy(update={"architecture": architecture})
    half = architecture.num_layers // 2
    fields = {"layers_per_stage": (half, architecture.num_layers - half)}
    configuration = plan.configuration.model_copy(update=fields)
    return plan.model_copy(update={"configuration": configuration}), request.model_copy(update={"workload": workload})


def _files(trainer: Any, scheduler: Any, **options: Any) -> dict[str, str]:
    return bundle(*job("llama-3.1-8b"), Launch(trainer=trainer, scheduler=scheduler, hosts=HOSTS, **options))


@pytest.mark.parametrize(("trainer", "scheduler"), PAIRS)
def test_every_pair_has_a_folder_whose_files_are_complete(trainer: str, scheduler: str, tmp_path: Path) -> None:
    files = _files(trainer, scheduler)
    manifest = json.loads(files["manifest.json"])
    assert set(manifest["sha256"]) == set(files) - {"manifest.json"}
    for name, digest in manifest["sha256"].items():
        assert hashlib.sha256(files[name].encode()).hexdigest() == digest
    named = set(re.findall(r"^\| `([^`]+)` \|", files["README.md"], re.MULTILINE))
    assert named == set(files) - {"README.md", "manifest.json"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        if name.endswith((".sh", ".sbatch", ".env")):
            done = subprocess.run(["bash", "-n", str(tmp_path / name)], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), name
        if name.endswith(".py"):
            ast.parse(text)
    for command in re.findall(r"bash (\w+\.sh)", "".join(files.values())):
        assert command in files


@pytest.mark.parametrize(
    ("model", "batch", "told"),
    [
        ("llama-3.1-70b", 8, "the plan has 32 layers, the request's model 80"),
        ("llama-3.1-8b", 16, "trains 8 sequences"),
    ],
)
def test_the_request_of_another_job_is_refused(model: str, batch: int, told: str) -> None:
    plan, request = job("llama-3.1-8b")
    architecture = Architecture.model_validate(named_entry("models", model))
    changes = {"architecture": architecture, "global_batch_sequences": batch}
    other = request.model_copy(update={"workload": request.workload.model_copy(update=changes)})
    with pytest.raises(Refused, match=told):
        bundle(plan, other, Launch(trainer="megatron-core", scheduler="slurm", hosts=HOSTS))


@pytest.mark.parametrize("pair", [("pytorch", "slurm"), ("megatron-core", "local")])
def test_what_runs_on_this_machine_alone_is_not_started_elsewhere(pair: tuple[str, str]) -> None:
    with pytest.raises(Refused, match="pytorch runs on this machine alone"):
        _files(*pair)


def test_the_iteration_of_a_bundle_has_every_replica_in_the_order_of_ranks() -> None:
    plan, request = job("llama-3.1-8b")
    case = ReplayCase.model_validate_json(
        bundle(plan, request, Launch(trainer=LOCAL[0], scheduler=LOCAL[1]))[CASE_FILE]
    )
    assert (case.num_ranks, len(case.replicas)) == (plan.configuration.degrees.pp, plan.configuration.degrees.dp)
    assert case.predicted_s == plan.metrics.iteration_s
    assert [one.operation for one in case.exchanges] == [
        f"{one.stage}SYNC" for one in sorted(plan.exchanges, key=lambda one: (one.start_s, one.stage))
    ]


def test_more_processes_than_a_machine_can_run_are_refused() -> None:
    plan, request = wide_plan(4 * MAX_RANKS)
    with pytest.raises(Refused, match="replicas need 128 processes"):
        bundle(plan, request, Launch(trainer=LOCAL[0], scheduler=LOCAL[1]))


def test_the_same_plan_gives_the_same_bytes() -> None:
    one, other = _files("megatron-core", "slurm"), _files("megatron-core", "slurm")
    assert zipped(one, "job") == zipped(other, "job")
    with zipfile.ZipFile(io.BytesIO(zipped(one, "job"))) as archive:
        assert {name.removeprefix("job/"): archive.read(name).decode() for name in archive.namelist()} == one


def test_a_changed_file_is_found_and_the_sites_own_is_not() -> None:
    files = {name: text.encode() for name, text in _files("megatron-core", "slurm").items()}
    assert changed_files(files) == []
    assert changed_files({**files, "site.env": b"mine", "ranks.csv": b"x"}) == ["ranks.csv"]
    with pytest.raises(Refused, match="no manifest"):
        changed_files({})


def test_spare_hosts_and_what_cannot_be_said_are_told_twice() -> None:
    files = _files("megatron-core", "slurm")
    manifest = json.loads(files["manifest.json"])
    assert manifest["spare_hosts"] == {"east-pool": ["e3"]}
    assert "pool east-pool: 1 hosts are not needed: e3" in files["README.md"]
    assert manifest["not_expressed"]
    assert all(f"- {line}" in files["README.md"] for line in manifest["not_expressed"])


def test_slurm_gets_the_words_of_the_site() -> None:
    script = _files("nemo", "slurm", name="big", time_limit_minutes=90, partition="gpu", account="team-1")["job.sbatch"]
    for option in ("--job-name=big", "--time=90", "--partition=gpu", "--account=team-1", "--gpus-per-node=8"):
        assert f"#SBATCH {option}\n" in script


@pytest.mark.parametrize(("trainer", "asked"), [("megatron-core", True), ("nemo", True), ("torchtitan", False)])
def test_one_connection_per_device_is_for_those_who_ask(trainer: Any, asked: bool) -> None:
    """torchtitan runs fully sharded whatever is planned: gathers on another stream would wait behind computation."""
    assert ("CUDA_DEVICE_MAX_CONNECTIONS=1" in _files(trainer, "slurm")["nccl.env"]) is asked


@pytest.mark.parametrize(("scheduler", "copied"), [("slurm", True), ("ssh", True), ("kubernetes", False)])
def test_a_folder_is_copied_to_hosts_where_no_pod_brings_it(scheduler: Any, copied: bool) -> None:
    readme = _files("megatron-core", scheduler)["README.md"]
    assert ("at the same path on every host" in readme) is copied
    assert "`site.env`" in readme


def test_a_pod_works_in_a_copy_of_its_folder(tmp_path: Path) -> None:
    """A ConfigMap is mounted read-only, as links; torchtitan and NeMo write where they start."""
    mounted, tools = tmp_path / "mounted", tmp_path / "tools"
    (mounted / "..data").mkdir(parents=True)
    tools.mkdir()
    for name, text in _files("megatron-core", "kubernetes").items():
        (mounted / "..data" / name).write_text(text)
        (mounted / name).symlink_to(f"..data/{name}")
    (tools / "torchrun").write_text('#!/bin/bash\npwd\ncat ranks.csv\nprintf "%s\\n" "$@"\n')
    (tools / "torchrun").chmod(0o755)
    env = {"PATH": f"{tools}:/usr/bin:/bin", "TMPDIR": str(tmp_path), "ISTHMUS_PREFLIGHT": "off",
           "ISTHMUS_NUM_NODES": "4", "ISTHMUS_GPUS_PER_POD": "8", "ISTHMUS_FIRST_NODE": "2",
           "JOB_COMPLETION_INDEX": "1", "MASTER_ADDR": "first", "MASTER_PORT": "1"}  # fmt: skip
    command = ["bash", str(mounted / "pod.sh"), "true"]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=30).stdout
    where = Path(said.splitlines()[0])
    assert where.parent == tmp_path
    assert where != mounted
    assert (where / "rank.sh").is_file()
    assert said.splitlines()[-4:] == ["--no-python", "bash", "rank.sh", "true"]
    assert "--node-rank=3" in said
    assert (mounted / "ranks.csv").read_text() in said


@pytest.mark.parametrize("asked", [False, True])
def test_segments_are_asked_for_where_slurm_has_blocks(asked: bool) -> None:
    options = re.findall(r"^#SBATCH (\S+)$", _files("nemo", "slurm", block_topology=asked)["job.sbatch"], re.MULTILINE)
    assert ("--segment=1" in options) is asked


@pytest.mark.parametrize(
    ("option", "value"),
    [("account", "a b"), ("partition", "x;reboot"), ("image", "$(id)"), ("name", "Big_Job"), ("queue", ""),
     ("time_limit_minutes", 0)],
)  # fmt: skip
def test_a_word_that_a_shell_could_take_for_more_is_refused(option: str, value: Any) -> None:
    with pytest.raises(Refused, match="cannot be the"):
        Launch.model_construct(trainer="nemo", scheduler="slurm", **{option: value}).check()


@pytest.mark.parametrize("name", entry_names("models"))
@pytest.mark.parametrize("crossing", ["dp_out", "pp_out"])
def test_megatron_parses_the_arguments_of_every_model_of_the_catalogue(name: str, crossing: str) -> None:
    plan, request = job(name, crossing)
    assert isinstance(parsed(plan, request), argparse.Namespace)


@pytest.mark.parametrize("name", entry_names("models"))
def test_every_field_of_the_nemo_job_exists_and_has_a_value_of_its_type(name: str) -> None:
    plan, request = job(name)
    known = FIELDS["model"] | (FIELDS["latent"] if request.workload.architecture.attention.kind == "mla" else {})
    for field, value in model_fields(plan, request).items():
        assert field in known, field
        assert fits(value, known[field]), (field, value, known[field])
    for path, value in settings_of(plan.configuration, request.workload).items():
        part, _, field = path.partition(".")
        assert fits(value, FIELDS["parts"][part][field]), path


def fits(value: Any, annotation: str) -> bool:
    """Whether an annotation of the source lets a value be, as far as its words tell."""
    kinds = {
        bool: "bool",
        int: "int|float",
        float: "float",
        str: "str|Literal",
        list: "List|list",
        tuple: "Tuple|tuple",
        type(None): "None|Optional",
    }
    return re.search(rf"\b({kinds[type(value)]})\b", annotation) is not None


def test_the_nemo_job_states_what_makes_the_model() -> None:
    fields = model_fields(*job("deepseek-v3"))
    assert (fields["normalization"], fields["layernorm_epsilon"], fields["qk_layernorm"]) == ("RMSNorm", 1e-6, True)
    assert (fields["kv_lora_rank"], fields["rope_type"], fields["rotary_scaling_factor"]) == (512, "yarn", 40.0)
    assert (fields["num_moe_experts"], sum(fields["moe_layer_freq"]), fields["mtp_num_layers"]) == (256, 58, 1)
    assert model_fields(*job("gpt-3-175b"))["position_embedding_type"] == "learned_absolute"
    assert model_fields(*job("llama-3.1-405b"))["rope_scaling_factor"] == 8.0


@pytest.mark.parametrize("trainer", ["megatron-core", "nemo"])
@pytest.mark.parametrize("precision", get_args(Precision))
def test_every_precision_of_a_request_has_a_bundle(trainer: Any, precision: str) -> None:
    plan, request = job("llama-3.1-8b")
    workload = request.workload.model_copy(update={"precision": precision})
    files = bundle(
        plan, request.model_copy(update={"workload": workload}), Launch(trainer=trainer, scheduler="slurm", hosts=HOSTS)
    )
    if trainer == "megatron-core":
        assert ("--bf16" in files["megatron.args"].splitlines()) is (precision in ("bf16", "fp8", "fp4"))
        assert ("--fp16" in files["megatron.args"].splitlines()) is (precision == "fp16")
    else:
        assert ("mixed_precision = None" in files["isthmus_job.py"]) is (precision == "fp32")


def test_every_rank_of_a_nemo_job_has_as_many_rows_of_the_vocabulary() -> None:
    plan, request = job("gpt-3-175b")
    assert request.workload.architecture.vocab_size % plan.configuration.degrees.tp
    assert model_fields(plan, request)["vocab_size"] % plan.configuration.degrees.tp == 0


def test_a_vocabulary_that_is_filled_up_is_told_with_both_sizes() -> None:
    """Megatron-LM fills up to a multiple of 128 times tp, Megatron-Bridge only what tp does not divide."""
    for model, trainer, rows in (
        ("gpt-3-175b", "megatron-core", "51,200"), ("gpt-3-175b", "nemo", "51,200"),
        ("llama-3.1-405b", "megatron-core", "129,024"), ("llama-3.1-405b", "nemo", ""),
    ):  # fmt: skip
        plan, request = job(model)
        degrees = plan.configuration.degrees.model_copy(update={"tp": 8})
        plan = plan.model_copy(update={"configuration": plan.configuration.model_copy(update={"degrees": degrees})})
        stated = f"{request.workload.architecture.vocab_size:,}"
        told = [one for one in TRAINERS[trainer].losses(plan, request) if one.startswith(f"the vocabulary of {stated}")]
        assert [f"tables have {rows} rows" in one for one in told] == [True] * bool(rows), (model, trainer)


def test_torchtitans_stages_hold_every_layer_once() -> None:
    text = _files("torchtitan", "ssh")["isthmus_job.py"]
    stages = next(
        ast.literal_eval(one.value)
        for one in ast.parse(text).body
        if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "STAGES"
    )
    flat = [name for stage in stages for name in stage]
    assert flat == ["tok_embeddings", *(f"layers.{layer}" for layer in range(32)), "norm", "lm_head"]


def test_ssh_starts_torchrun_on_every_host_with_its_name(tmp_path: Path) -> None:
    """The whole way with stand-ins for ssh, torchrun and the trainer: every rank starts once, where it is planned."""
    files = _files("megatron-core", "ssh")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    _tool(tmp_path / "bin/ssh", 'shift; exec bash -c "$1"')
    _tool(
        tmp_path / "bin/torchrun",
        'for word in "$@"; do\n'
        "  case $word in --node-rank=*) node=${word#*=} ;; --nproc-per-node=*) each=${word#*=} ;; esac\n"
        "done\n"
        "while [[ $1 == --* ]]; do shift; done\n"
        'for ((i = 0; i < each; i++)); do RANK=$((node * each + i)) LOCAL_RANK=$i WORLD_SIZE=32 "$@"; done\n',
    )
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "ISTHMUS_SSH": "ssh", "ISTHMUS_PREFLIGHT": "off"}
    done = subprocess.run(["bash", "start.sh", "run", "echo", "a b"], cwd=tmp_path, env=env, capture_output=True,
                          text=True, check=False, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    ranks = re.findall(r"^isthmus-rank (\d+) \d+ (\S+)$", done.stdout, re.MULTILINE)
    assert sorted(int(rank) for rank, _ in ranks) == list(range(32))
    assert {host for rank, host in ranks if int(rank) < 8} == {"e1"}
    assert done.stdout.splitlines().count("a b") == 32


def _tool(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def looked(tmp_path: Path) -> Path:
    """A folder with the preflight, and stand-ins for what it asks of a host that is as planned."""
    (tmp_path / "preflight.sh").write_text(_files("megatron-core", "slurm")["preflight.sh"])
    _tool(tmp_path / "bin/nvidia-smi", 'for i in 0 1 2 3 4 5 6 7; do echo "GPU $i: x"; done')
    _tool(tmp_path / "bin/ls", "printf 'mlx%s\\n' 0 1 2 3 4 5 6 7")
    _tool(tmp_path / "bin/python", "echo 2.27.3")
    _tool(tmp_path / "bin/ping", "true")
    _tool(tmp_path / "bin/timedatectl", "echo yes")
    return tmp_path


def _look(folder: Path, host: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "ISTHMUS_HOST": host}
    return subprocess.run(["bash", "preflight.sh", *arguments], cwd=folder, env=env, input=stdin, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip


def test_the_preflight_lets_hosts_as_planned_pass(looked: Path) -> None:
    lines = "".join(_look(looked, host).stdout for host in ("e1", "e2", "w1", "w2"))
    report = _look(looked, "e1", "--report", stdin=lines)
    assert (report.returncode, report.stdout) == (0, "preflight: every host is as planned\n"), lines


@pytest.mark.parametrize(
    ("tool", "text", "told"),
    [
        ("nvidia-smi", 'echo "GPU 0: x"', "1-of-8-gpus"),
        ("ls", "echo mlx0", "1-of-8-network-cards"),
        ("python", "echo 2.18.1", "nccl-2.18.1-below-2.24"),
        ("python", "false", "nccl-none-below-2.24"),
        ("ping", "false", "cannot-reach-w1"),
        ("timedatectl", "echo no", "clock-not-synchronised"),
    ],
)
def test_the_preflight_says_what_a_host_lacks(looked: Path, tool: str, text: str, told: str) -> None:
    _tool(looked / "bin" / tool, text)
    done = _look(looked, "e1")
    assert done.returncode == 1
    assert f"problems={told}\n" in done.stdout


def test_the_report_of_the_preflight_compares_hosts(looked: Path) -> None:
    line = "isthmus-preflight {} gpus=8 cards=8 nccl={} clock={} problems=\n"
    lines = [
        line.format("e1", "2.27.3", "100.0"),
        line.format("e2", "2.27.3", "100.5"),
        line.format("w1", "2.30.1", 160),
    ]
    report = _look(looked, "e1", "--report", stdin="".join(lines))
    assert report.returncode == 1
    assert "w2: did not answer" in report.stdout
    assert "different versions of NCCL" in report.stdout
    assert "clocks differ by 60 s: e1 and w1" in report.stdout
    assert "not-in-the-plan" in _look(looked, "mars").stdout


def test_every_argument_survives_the_shell() -> None:
    """rank.sh reads the arguments file with the shell's quotes."""
    files = _files("megatron-core", "slurm")
    words = shlex.split(files["megatron.args"], comments=True)
    script = "eval \"arguments=($(grep -v '^#' megatron.args))\"; printf '%s\\n' \"${arguments[@]}\""
    assert "eval \"arguments=($(grep -v '^#' megatron.args))\"" in files["rank.sh"]
    done = subprocess.run(["bash", "-c", script.replace("megatron.args", "/dev/stdin")], input=files["megatron.args"],
                          capture_output=True, text=True, check=True, timeout=30)  # fmt: skip
    assert done.stdout.splitlines() == words
