"""Functions that PostgreSQL, DuckDB, Spark or Flink have and CQL does not.

Nobody who writes one of them has mistyped another one, so no similar name is suggested; where something here gives the
same, that is. In what to write, ``{0}`` is the first argument, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")

INSTEAD: dict[str, str] = {
    # aggregates
    "approx_count_distinct": "count(DISTINCT {0})",
    "approx_quantile": "percentile({0}, {1})",
    "percentile_approx": "percentile({0}, {1})",
    "approx_percentile": "percentile({0}, {1})",
    "any_value": "min({0})",
    "arbitrary": "min({0})",
    "some": "bool_or({0})",
    **{f"{name}if": f"{name}({{0}}) FILTER (WHERE {{1}})" for name in ("sum", "avg", "min", "max")},
    "std": "stddev({0})",
    "collect_set": "collect(DISTINCT {0})",
    "string_agg": "array_join(collect({0}), {1})",
    "group_concat": "array_join(collect({0}), {1})",
    "listagg": "array_join(collect({0}), {1})",
    # choice
    "isnull": "{0} IS NULL",
    "isnotnull": "{0} IS NOT NULL",
    "nvl2": "CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END",
    "iif": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "nullifzero": "nullif({0}, 0)",
    "zeroifnull": "coalesce({0}, 0)",
    "equal_null": "{0} IS NOT DISTINCT FROM {1}",
    # numbers
    "e": "exp(1)",
    "sinh": "((exp({0}) - exp(-{0})) / 2)",
    "cosh": "((exp({0}) + exp(-{0})) / 2)",
    "cot": "(1 / tan({0}))",
    "negative": "(-{0})",
    "pmod": "(({0} % {1} + {1}) % {1})",
    "try_divide": "({0} / {1})",
    # texts
    "bit_length": "(octet_length({0}) * 8)",
    "space": "repeat(' ', {0})",
    "prefix": "starts_with({0}, {1})",
    "string": "CAST({0} AS STRING)",
    "int": "CAST({0} AS INT)",
    "bigint": "CAST({0} AS BIGINT)",
    "float": "CAST({0} AS REAL)",
    "double": "CAST({0} AS DOUBLE)",
    "boolean": "CAST({0} AS BOOLEAN)",
    "date": "CAST({0} AS DATE)",
    "timestamp": "CAST({0} AS TIMESTAMP)",
    "try_to_timestamp": "TRY_CAST({0} AS TIMESTAMP)",
    # times
    "weekday": "(isodow({0}) - 1)",
    "datetrunc": "date_trunc({0}, {1})",
    "unix_timestamp": "unix_seconds({0})",
    "to_unix_timestamp": "unix_seconds({0})",
    "epoch_ms": "unix_millis({0})",
    "epoch_us": "to_ticks({0})",
    "epoch_ns": "(to_ticks({0}) * 1000)",
    **{f"to_{unit}s": f"(INTERVAL '1' {unit.upper()} * {{0}})" for unit in _UNITS},
    # arrays
    "list_extract": "element_at({0}, {1})",
    "array_extract": "element_at({0}, {1})",
    "array_has": "array_contains({0}, {1})",
    "list_has": "array_contains({0}, {1})",
    # windows, which stand behind their stream here: ``WINDOWS``
    **{f"{window}_{bound}": f"window_{bound}" for window in ("tumble", "hop", "session") for bound in ("start", "end")},
}

WINDOWS: dict[str, str] = {
    "tumble": "TUMBLING {1}",
    "hop": "HOPPING {2} EVERY {1}",
    "session": "SESSION GAP {1}",
    "session_window": "SESSION GAP {1}",
    "window": "TUMBLING {1}",
}
"""Functions of windows, and of their bounds with ``_start`` and ``_end``: the window in brackets."""

# Nothing here does the same.
_ALONE = """
    acosh age aggregate approx_top_k arg_max arg_min argmax argmin array array_aggr array_aggregate array_append
    array_cat array_compact array_concat array_distinct array_except array_filter array_insert array_intersect
    array_max array_min array_position array_prepend array_remove array_repeat array_resize array_reverse
    array_slice array_sort array_transform array_union array_unique arrays_overlap arrays_zip asinh assert_true
    atanh bar base64 bin bit_and bit_count bit_get bit_or bit_position bit_xor bitand bitmap_count bitor bitstring
    bitwise_and bitwise_not bitwise_or bitwise_xor bitwisenot bitxor bool_xor bround century clock_timestamp
    constant_or_null col conv convert convert_from convert_timezone convert_to corr count_min_sketch count_star
    covar_pop covar_samp crc32 csc cume_dist cumulate curdate current_catalog current_database current_date
    current_rowtime current_schema current_time current_timestamp current_user current_watermark damerau_levenshtein
    date_bin date_from_unix_date dateadd datepart datesub dayname days decade dense_rank descriptor divide elt
    entropy era error even exists explode explode_outer expm1 expr factorial favg fdiv filter find_in_set flatten
    fmod forall format format_number format_string from_base64 from_csv from_json from_unixtime fsum gamma gcd
    gen_random_uuid generate_series generate_subscripts geomean geometric_mean get get_bit get_byte
    get_current_timestamp get_json_object getbit glob greatest_common_divisor grouping grouping_id hamming hash
    histogram histogram_numeric hmac hop_rowtime hours hypot ilike initcap inline isoyear jaccard jaro_similarity
    jaro_winkler_similarity json json_array json_array_length json_exists json_extract json_extract_path
    json_extract_string json_object json_object_keys json_query json_tuple json_value julian justify_days
    justify_hours justify_interval kahan_sum kurtosis kurtosis_pop lag lcm lead least_common_multiple levenshtein
    lgamma list_aggregate list_any_value list_append list_apply list_avg list_cat list_concat list_count
    list_distinct list_element list_filter list_first list_has_all list_has_any list_last list_max list_min
    list_pack list_position list_prepend list_reduce list_resize list_reverse list_reverse_sort list_select
    list_slice list_sort list_sum list_transform list_unique list_value list_zip localtime localtimestamp log1p
    luhn_check mad make_dt_interval make_interval make_time make_timestamp_ltz make_timestamp_ntz make_timestamptz
    make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries
    map_keys map_values mask max_by millennium min_by mode monotonically_increasing_id monthname months
    months_between multiply named_struct nanosecond nanvl next_day nextafter nextval nfc_normalize normalize now
    nth_value ntile num_nonnulls num_nulls overlay parse_filename parse_ident parse_path parse_url percent_rank
    percentile_cont percentile_disc pg_sleep pg_typeof posexplode positive printf proctime product quantile_disc
    quote_ident quote_literal quote_nullable raise_error rand randn random range rank read_csv read_json
    read_parquet reduce reflect regexp_count regexp_escape regexp_extract_all regexp_full_match regexp_instr
    regexp_match regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile right_grapheme rint row
    row_number schema_of_json sec sem sentences sequence session session_user setseed sha sha1 sha2 sha224 sha384
    sha512 shiftleft shiftright shiftrightunsigned shuffle similarity skewness slice sort_array soundex
    spark_partition_id split split_index stack str_split str_split_regex str_to_map string_split string_to_array
    string_to_table strip_accents struct struct_extract struct_insert struct_pack substring_grapheme substring_index
    subtract sum_no_overflow tanh time_bucket timeofday timestamp_diff timestampadd timetz_byte_comparable timezone
    to_base to_base64 to_binary to_centuries to_char to_csv to_decades to_json to_millennia to_months to_number
    to_quarters to_timestamp_ltz to_timestamp_ntz to_tsquery to_tsvector to_varchar to_years today
    transaction_timestamp transform transform_keys transform_values translate trim_array try_add try_multiply
    try_subtract try_sum try_to_binary try_to_number typeof unbase64 union_extract union_tag union_value unistr
    unix_date unnest url_decode url_encode user uuid variant_get version weighted_avg width_bucket window_time xpath
    xxhash64 years yearweek zip_with
"""


_NAMES = frozenset({*INSTEAD, *WINDOWS, *_ALONE.split()})


def is_foreign(name: str) -> bool:
    """Whether another system has a function of that name, in lower case."""
    return name in _NAMES


def instead(name: str, args: Sequence[str]) -> str | None:
    """What to write for a call of another system's function, given its arguments, in parentheses where need be."""
    written = INSTEAD.get(name)
    if written is None or (args and f"{{{len(args) - 1}}}" not in written and "{" in written):
        return None
    try:
        return written.format(*args)
    except IndexError:
        return None


def window_of(name: str, args: Sequence[str]) -> str | None:
    """What stands in brackets behind a stream for a window, or a bound of one, as a function; None if it is none."""
    of = name.removesuffix("_start").removesuffix("_end")
    form = WINDOWS.get(of)
    if form is None or f"{{{len(args) - 1}}}" not in form:
        return None
    try:
        return form.format(*args)
    except IndexError:
        return None
