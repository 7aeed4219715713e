"""Settings come from the environment, each checked, none ignored."""

from __future__ import annotations

import pytest

from app.settings import InvalidSetting, Settings


def test_every_setting_has_its_variable_and_a_description() -> None:
    values = {"ISTHMUS_DATABASE_URL": "postgresql://db/isthmus", "ISTHMUS_NUM_CONCURRENT_SOLVES": "4"}
    settings = Settings.from_environment({**values, "HOME": "/"})
    assert (settings.database_url, settings.num_concurrent_solves) == ("postgresql://db/isthmus", 4)
    assert all(field.description for name, field in Settings.model_fields.items())


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ISTHMUS_PORT", "many"), ("ISTHMUS_PORT", "70000"), ("ISTHMUS_MAX_WAIT_S", "nan"), ("ISTHMUS_PROT", "1"),
     ("ISTHMUS_ALLOWED_HOSTS", "plans.example:8000"), ("ISTHMUS_ALLOWED_HOSTS", "https://plans.example"),
     ("ISTHMUS_ALLOWED_HOSTS", "plans.example,*"), ("ISTHMUS_HEARTBEAT_S", "20"), ("ISTHMUS_DRAIN_S", "1e10"),
     ("ISTHMUS_MAX_WAIT_S", "1e308"), ("ISTHMUS_LOG_LEVEL", "LOUD"), ("ISTHMUS_SOLVERS", "x:y"),
     ("ISTHMUS_DATABASE_URL", "isthmus.sqlite")],
)  # fmt: skip
def test_a_wrong_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=variable):
        Settings.from_environment({variable: value})


def test_a_worker_that_is_soon_dead_has_to_beat_often() -> None:
    with pytest.raises(InvalidSetting, match=r"HEARTBEAT_S=3\.0: at most half of .*, 1 s"):
        Settings.from_environment({"ISTHMUS_DEAD_WORKER_S": "2"})
    often = Settings.from_environment({"ISTHMUS_DEAD_WORKER_S": "2", "ISTHMUS_HEARTBEAT_S": "1"})
    assert often.heartbeat_s == 1.0


def test_hosts_are_names_or_all_names_below_one() -> None:
    hosts = Settings.from_environment({"ISTHMUS_ALLOWED_HOSTS": "Plans.example, *.lab.example,10.2.0.1"}).allowed_hosts
    assert hosts == ("plans.example", "*.lab.example", "10.2.0.1")


@pytest.mark.parametrize("password", ["word", "w@rd", "w/rd"])
def test_the_password_of_a_database_is_in_no_message(password: str) -> None:
    url = f"postgres://me:{password}@db/isthmus"
    for refused in (
        lambda: Settings.from_environment({"ISTHMUS_DATABASE_URL": url}),
        lambda: Settings().changed({"database_url": url}),
    ):
        with pytest.raises(InvalidSetting, match="postgresql://USER") as told:
            refused()
        assert password not in str(told.value)
        assert "@db/isthmus" in str(told.value)


@pytest.mark.parametrize("values", [{"port": 70000}, {"database_url": "mysql://db/isthmus"}])
def test_a_wrong_option_is_named_with_its_value(values: dict[str, object]) -> None:
    ((name, value),) = values.items()
    with pytest.raises(InvalidSetting, match=f"{name}={value!r}"):
        Settings().changed(values)
