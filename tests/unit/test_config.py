from __future__ import annotations

import pytest

from perfguard.config import Config, LoadedConfig, SuiteConfig, load_config, suite_specs
from perfguard.errors import ConfigError
from perfguard.records.plan import EnvProfile


@pytest.fixture
def place(tmp_path):
    """A project directory; `tmp_path / "user"` is the user's configuration home."""
    path = tmp_path / "project"
    path.mkdir()
    (path / ".git").mkdir()
    (tmp_path / "user" / "perfguard").mkdir(parents=True)
    return path


@pytest.fixture
def load(place, tmp_path):
    def loaded(start=None, options=None, **environment) -> LoadedConfig:
        variables = {"XDG_CONFIG_HOME": str(tmp_path / "user"), **environment}
        return load_config(start or place, variables, options)

    return loaded


def test_without_any_file_everything_is_built_in(place, load):
    loaded = load()
    assert (loaded.config, dict(loaded.origins), loaded.project) == (Config(), {}, place)


def test_later_layers_win_and_each_value_knows_its_origin(place, load, tmp_path):
    user = tmp_path / "user" / "perfguard" / "config.toml"
    user.write_text("samples = 2\nseed = 2\nwarmups = 2\nmargin = 0.02\nrounds = 22\n")
    (place / "perfguard.toml").write_text("samples = 3\nseed = 3\nwarmups = 3\nmargin = 0.03\n")
    loaded = load(
        options={"samples": 5, "seed": None}, PERFGUARD_SAMPLES="4", PERFGUARD_SEED="4", PERFGUARD_WARMUPS="4"
    )
    config, project = loaded.config, str(place / "perfguard.toml")
    assert (config.samples, config.seed, config.warmups, config.margin, config.rounds) == (5, 4, 4, 0.03, 22)
    assert loaded.origins == {
        "samples": "command line",
        "seed": "PERFGUARD_SEED",
        "warmups": "PERFGUARD_WARMUPS",
        "margin": project,
        "rounds": str(user),
    }


def test_keys_by_their_older_names_are_read(place, load):
    (place / "perfguard.toml").write_text("slices = 3\nslice-s = 0.5\n")
    loaded = load(PERFGUARD_SLICES="4")
    assert (loaded.config.samples, loaded.config.sample_s) == (4, 0.5)
    assert loaded.origins["samples"] == "PERFGUARD_SLICES"


def test_the_projects_file_is_found_from_below(place, load):
    (place / "perfguard.toml").write_text("samples = 3\n")
    deep = place / "a" / "b"
    deep.mkdir(parents=True)
    loaded = load(start=deep)
    assert (loaded.config.samples, loaded.project) == (3, place)


def test_the_nearest_file_wins_and_its_directory_is_the_project(place, load):
    (place / "perfguard.toml").write_text("samples = 3\nwarmups = 0\n")
    inner = place / "packages" / "one"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.perfguard]\nsamples = 4\n")
    loaded = load(start=inner)
    assert (loaded.config.samples, loaded.config.warmups, loaded.project) == (4, 1, inner)


def test_a_pyproject_of_something_else_is_passed_over(place, load):
    (place / "perfguard.toml").write_text("samples = 3\n")
    inner = place / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert load(start=inner).config.samples == 3


def test_its_own_file_wins_over_pyproject(place, load):
    (place / "perfguard.toml").write_text("samples = 3\n")
    (place / "pyproject.toml").write_text("[tool.perfguard]\nsamples = 4\nwarmups = 0\n")
    assert (load().config.samples, load().config.warmups) == (3, 1)


def test_the_search_ends_at_the_repository(place, load, tmp_path):
    (tmp_path / "perfguard.toml").write_text("samples = 3\n")
    assert load().config.samples == Config().samples


def test_without_a_file_a_subdirectory_still_belongs_to_the_repository(place, load):
    """Else each directory would get run folders and baselines of its own."""
    deep = place / "deep"
    deep.mkdir()
    assert load(start=deep).project == place


def test_a_project_reached_through_a_link_is_named_by_its_real_path(place, load, tmp_path):
    (place / "perfguard.toml").write_text("")
    (tmp_path / "link").symlink_to(place)
    assert load(start=tmp_path / "link").project == place


def test_dashes_are_as_good_as_underscores(place, load):
    (place / "perfguard.toml").write_text('max-blocks = 9\nenv-profile = "production"\n')
    config = load().config
    assert (config.max_blocks, config.env_profile) == (9, EnvProfile.PRODUCTION)


def test_suites_of_ones_own(place, load):
    (place / "perfguard.toml").write_text('[suites.mine]\ngating = ["a", "tag:b"]\nadvisory = ["c"]\ndoc = "d"\n')
    config = load().config
    assert config.suites == {"mine": SuiteConfig(gating=("a", "tag:b"), advisory=("c",), doc="d")}
    (spec,) = suite_specs(config)
    assert (spec.name, spec.gating, spec.advisory, spec.budget_s) == ("mine", ("a", "tag:b"), ("c",), 600.0)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("benchmarks", "a.py, b/*.py,", ("a.py", "b/*.py")),
        ("fail_on", "regression,failed", ("regression", "failed")),
        ("pass_env", "", ()),
        ("threads", "4", 4),
        ("budget_s", "90", 90.0),
        ("margin", "0.01", 0.01),
        ("suite", "pr", "pr"),
        ("env_profile", "production", EnvProfile.PRODUCTION),
        ("cpus", "2-5,8", "2-5,8"),
    ],
)
def test_variables_are_read_as_their_key_wants(load, name, text, value):
    assert getattr(load(**{f"PERFGUARD_{name.upper()}": text}).config, name) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("samples = ", r"perfguard\.toml is not valid TOML"),
        (f"samples = 1{'0' * 5000}", r"perfguard\.toml is not valid TOML"),
        ("samplez = 3", r"perfguard\.toml: unknown key 'samplez'; did you mean 'samples'\?"),
        ("zzzzzz = 3", r"unknown key 'zzzzzz'; known keys: suite, benchmarks"),
        ("samples = '3'", r"perfguard\.toml: samples: Expected `int`, got `str`"),
        ("samples = 3.5", "samples: Expected `int`, got `float`"),
        ("samples = true", "samples: Expected `int`, got `bool`"),
        ("benchmarks = 'a.py'", "benchmarks: Expected `array`, got `str`"),
        ("env_profile = 'loud'", "env_profile: Invalid enum value 'loud'"),
        ("samples = 0", "samples = 0 must be between 1 and 1000"),
        ("sample_s = nan", "sample_s = nan must be between"),
        ("warmups = -1", "warmups = -1 must be between"),
        ("max_blocks = 0", "max_blocks = 0 must be at least 1"),
        ("budget_s = inf", "budget_s = inf must be positive"),
        ("budget_s = nan", "budget_s = nan must be positive"),
        ("budget_s = -1", "budget_s = -1.* must be positive"),
        ("alpha = 0.5", "alpha = 0.5 must be between"),
        ("margin = -0.1", "margin = -0.1 must be"),
        ("equivalence = 0", "equivalence = 0.* must be"),
        ("max_block_sd = inf", "max_block_sd = inf must be"),
        ("rounds = 1", "rounds = 1 must be"),
        ("spread_s = -1", "spread_s = -1.* must be"),
        ("seed = -1", "seed = -1 must be between"),
        ("pass_env = ['A=1']", "pass_env = .* must be names of variables"),
        ("threads = 0", "threads = 0 must be at least 1"),
        ("fail_on = ['regresion']", r"unknown outcome 'regresion'; did you mean 'regression'\?"),
        ("keys = {sort = ['x', 's']}", r"keys\.sort: write one text with commas"),
        ("suites = 3", "suites: Expected `object`, got `int`"),
        ("[suites.x]\ngating = ['a']\nbudget_s = nan", r"suites\.x\.budget_s = nan must be positive"),
        ("[suites.x]\nadvisory = ['a']", "suites: Object missing required field `gating`"),
        ("[suites.x]\ngating = ['a']\nadvisry = ['a']", r"suites\.x: unknown key 'advisry'; did you mean 'advisory'\?"),
    ],
)
def test_a_wrong_value_is_refused_with_its_file_and_key(place, load, text, said):
    (place / "perfguard.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        load()
    assert str(place / "perfguard.toml") in str(refused.value)


def test_an_empty_variable_is_as_if_it_were_not_set(load):
    assert load(PERFGUARD_THREADS="", PERFGUARD_SUITE="", PERFGUARD_PYTHON="").config == load().config


def test_never_alone_means_that_no_outcome_fails(load):
    assert load(PERFGUARD_FAIL_ON="never").config.fail_on == ()


@pytest.mark.parametrize("text", ["four", "4.5", " ", "--4"])
def test_a_wrong_variable_is_refused_by_its_name(load, text):
    with pytest.raises(ConfigError, match="PERFGUARD_SAMPLES: samples: Expected `int`"):
        load(PERFGUARD_SAMPLES=text)


def test_a_wrong_option_is_refused_as_such(load):
    with pytest.raises(ConfigError, match="command line: samples = 0"):
        load(options={"samples": 0})


def test_a_file_that_is_no_text_is_an_error(place, load):
    (place / "perfguard.toml").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigError, match=r"perfguard\.toml cannot be read"):
        load()


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nperfguard = 3"])
def test_a_pyproject_of_a_wrong_shape_is_an_error(place, load, text):
    (place / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match="must be a table"):
        load()


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to(path)])
def test_a_configuration_that_is_no_file_is_refused_and_not_passed_over(place, load, make):
    make(place / "perfguard.toml")
    with pytest.raises(ConfigError, match="perfguard.toml is not a file that can be read"):
        load()


def test_a_suite_name_that_would_leave_its_folder_is_refused(place, load):
    (place / "perfguard.toml").write_text('[suites."a/../../b"]\ngating = ["x"]\n')
    with pytest.raises(ConfigError, match="it names a folder"):
        load()


def test_a_suite_that_selects_nothing_is_refused(place, load):
    (place / "perfguard.toml").write_text("[suites.empty]\ngating = []\n")
    with pytest.raises(ConfigError, match="'empty' selects nothing"):
        load()
