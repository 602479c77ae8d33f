"""The tables behind ``pg_catalog`` and ``information_schema``, made of what a user may read.

Streams and relations are tables, queries are materialized views; ``sys.*`` are tables of the schema ``sys``. The key of
a relation is its primary key. Numbers of objects (oids) are made of their names, so that they are the same at every
question.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.server.postgres import types
from penstock.server.postgres.types import LONG_NAMES, TYPES
from penstock.server.service import Service, Session

_OID, _INT2, _INT4, _INT8, _BOOL, _TEXT = pa.uint32(), pa.int16(), pa.int32(), pa.int64(), pa.bool_(), pa.string()
_FLOAT, _NUMBERS, _TEXTS = pa.float32(), pa.list_(pa.int16()), pa.list_(pa.string())
_LETTERS = {
    "o": _OID,
    "2": _INT2,
    "4": _INT4,
    "8": _INT8,
    "b": _BOOL,
    "t": _TEXT,
    "f": _FLOAT,
    "N": _NUMBERS,
    "T": _TEXTS,
}
_PG_CATALOG, _PUBLIC, _INFORMATION, _SYS = 11, 2200, 13_000, 13_001
_NAMESPACES = {"pg_catalog": _PG_CATALOG, "public": _PUBLIC, "information_schema": _INFORMATION, "sys": _SYS}


def _schema(text: str) -> pa.Schema:
    """``name:letter`` for each column; without a letter it is text."""
    fields = [word.partition(":") for word in text.split()]
    return pa.schema([(name, _LETTERS[letter or "t"]) for name, _, letter in fields])


SCHEMAS = {name: _schema(text) for name, text in {
    "pg_class":
        "oid:o relname relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o "
            "relpages:4 "
        "reltuples:f relallvisible:4 reltoastrelid:o relhasindex:b relisshared:b relpersistence relkind relnatts:2 "
        "relchecks:2 relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b "
        "relispopulated:b relreplident relispartition:b relrewrite:o relfrozenxid:o relminmxid:o relacl:T reloptions:T "
        "relpartbound relhasoids:b",
    "pg_attribute":
        "attrelid:o attname atttypid:o attstattarget:4 attlen:2 attnum:2 attndims:4 attcacheoff:4 atttypmod:4 "
            "attbyval:b "
        "attalign attstorage attcompression attnotnull:b atthasdef:b atthasmissing:b attidentity attgenerated "
        "attisdropped:b attislocal:b attinhcount:4 attcollation:o attacl:T attoptions:T attfdwoptions:T attmissingval",
    "pg_index":
        "indexrelid:o indrelid:o indnatts:2 indnkeyatts:2 indisunique:b indnullsnotdistinct:b indisprimary:b "
        "indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b "
        "indisreplident:b indkey:N indcollation:N indclass:N indoption:N indexprs indpred definition",
    "pg_constraint":
        "oid:o conname connamespace:o contype condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o "
        "conindid:o conparentid:o confrelid:o confupdtype confdeltype confmatchtype conislocal:b coninhcount:4 "
        "connoinherit:b conkey:N confkey:N conbin definition",
    "pg_matviews": "schemaname matviewname matviewowner tablespace hasindexes:b ispopulated:b definition oid:o",
    "pg_tables":
        "schemaname tablename tableowner tablespace hasindexes:b hasrules:b hastriggers:b rowsecurity:b",
    "pg_database":
        "oid:o datname datdba:o encoding:4 datlocprovider datistemplate:b datallowconn:b datconnlimit:4 datfrozenxid:o "
        "datminmxid:o dattablespace:o datcollate datctype daticulocale datcollversion datacl:T",
    "pg_roles":
        "rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolconnlimit:4 "
        "rolpassword rolvaliduntil rolbypassrls:b rolconfig:T oid:o",
    "pg_auth_members": "roleid:o member:o grantor:o admin_option:b",
    "pg_user": "usename usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd valuntil useconfig:T",
    "pg_settings":
        "name setting unit category short_desc extra_desc context vartype source min_val max_val enumvals:T boot_val "
        "reset_val sourcefile sourceline:4 pending_restart:b",
    "information_schema_tables":
        "table_catalog table_schema table_name table_type self_referencing_column_name reference_generation "
        "user_defined_type_catalog user_defined_type_schema user_defined_type_name is_insertable_into is_typed "
        "commit_action",
    "information_schema_columns":
        "table_catalog table_schema table_name column_name ordinal_position:4 column_default is_nullable data_type "
        "character_maximum_length:4 character_octet_length:4 numeric_precision:4 numeric_precision_radix:4 "
        "numeric_scale:4 datetime_precision:4 interval_type interval_precision:4 character_set_name collation_name "
        "domain_name udt_catalog udt_schema udt_name is_self_referencing is_identity identity_generation is_generated "
        "generation_expression is_updatable dtd_identifier",
    "information_schema_views":
        "table_catalog table_schema table_name view_definition check_option is_updatable is_insertable_into",
    "information_schema_table_constraints":
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name constraint_type "
        "is_deferrable initially_deferred enforced",
    "information_schema_key_column_usage":
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name column_name "
        "ordinal_position:4 position_in_unique_constraint:4",
    "information_schema_schemata":
        "catalog_name schema_name schema_owner default_character_set_catalog default_character_set_schema "
        "default_character_set_name sql_path",
}.items()}  # fmt: skip
"""Tables that are another for each session."""
_ALWAYS_EMPTY = {name: _schema(text) for name, text in {
    "pg_attrdef": "oid:o adrelid:o adnum:2 adbin",
    "pg_inherits": "inhrelid:o inhparent:o inhseqno:4 inhdetachpending:b",
    "pg_policy": "oid:o polname polrelid:o polcmd polpermissive:b polroles:N polqual polwithcheck",
    "pg_statistic_ext": "oid:o stxrelid:o stxname stxnamespace:o stxowner:o stxstattarget:4 stxkeys:N stxkind:T "
        "stxexprs",
    "pg_publication": "oid:o pubname pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b",
    "pg_publication_rel": "oid:o prpubid:o prrelid:o prqual prattrs:N",
    "pg_publication_namespace": "oid:o pnpubid:o pnnspid:o",
    "pg_trigger":
        "oid:o tgrelid:o tgparentid:o tgname tgfoid:o tgtype:2 tgenabled tgisinternal:b tgconstrrelid:o "
            "tgconstrindid:o "
        "tgconstraint:o tgdeferrable:b tginitdeferred:b",
    "pg_rewrite": "oid:o rulename ev_class:o ev_type ev_enabled is_instead:b ev_qual ev_action",
    "pg_proc":
        "oid:o proname pronamespace:o proowner:o prolang:o prokind prosecdef:b proretset:b pronargs:2 prorettype:o "
        "proargtypes:N proallargtypes:N proargmodes:T proargnames:T prosrc proacl:T provolatile proisstrict:b",
    "pg_enum": "oid:o enumtypid:o enumsortorder:f enumlabel",
    "pg_range": "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical rngsubdiff",
    "pg_sequence": "seqrelid:o seqtypid:o seqstart:8 seqincrement:8 seqmax:8 seqmin:8 seqcache:8 seqcycle:b",
    "pg_sequences": "schemaname sequencename sequenceowner data_type start_value:8 last_value:8",
    "pg_extension": "oid:o extname extowner:o extnamespace:o extrelocatable:b extversion extconfig:N extcondition:T",
    "pg_available_extensions": "name default_version installed_version comment",
    "pg_depend": "classid:o objid:o objsubid:4 refclassid:o refobjid:o refobjsubid:4 deptype",
    "pg_shdepend": "dbid:o classid:o objid:o objsubid:4 refclassid:o refobjid:o deptype",
    "pg_foreign_table": "ftrelid:o ftserver:o ftoptions:T",
    "pg_foreign_server": "oid:o srvname srvowner:o srvfdw:o srvtype srvversion srvacl:T srvoptions:T",
    "pg_foreign_data_wrapper": "oid:o fdwname fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T",
    "pg_description": "objoid:o classoid:o objsubid:4 description",
    "pg_shdescription": "objoid:o classoid:o description",
    "pg_partitioned_table": "partrelid:o partstrat partnatts:2 partdefid:o partattrs:N",
    "pg_event_trigger": "oid:o evtname evtevent evtowner:o evtfoid:o evtenabled evttags:T",
    "pg_language": "oid:o lanname lanowner:o lanispl:b lanpltrusted:b",
    "pg_opclass": "oid:o opcmethod:o opcname opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b "
        "opckeytype:o",
    "pg_operator": "oid:o oprname oprnamespace:o oprkind oprleft:o oprright:o oprresult:o",
    "pg_cast": "oid:o castsource:o casttarget:o castfunc:o castcontext castmethod",
    "pg_collation": "oid:o collname collnamespace:o collowner:o collprovider collisdeterministic:b collcollate "
        "collctype colliculocale",
    "pg_conversion": "oid:o conname connamespace:o",
    "pg_indexes": "schemaname tablename indexname tablespace indexdef",
    "pg_views": "schemaname viewname viewowner definition",
    "pg_locks": "locktype database:o relation:o pid:4 mode granted:b",
    "pg_db_role_setting": "setdatabase:o setrole:o setconfig:T",
    "pg_prepared_xacts": "transaction:o gid owner database",
    "pg_stat_user_tables": "relid:o schemaname relname seq_scan:8 n_live_tup:8",
    "pg_stat_activity": "datid:o datname pid:4 usename application_name client_addr state query",
    "pg_timezone_names": "name abbrev utc_offset is_dst:b",
    "pg_seclabel": "objoid:o classoid:o objsubid:4 provider label",
    "pg_default_acl": "oid:o defaclrole:o defaclnamespace:o defaclobjtype defaclacl:T",
    "pg_aggregate": "aggfnoid:o aggkind aggnumdirectargs:2",
    "pg_subscription": "oid:o subdbid:o subname subowner:o subenabled:b",
    "information_schema_referential_constraints":
        "constraint_catalog constraint_schema constraint_name unique_constraint_catalog unique_constraint_schema "
        "unique_constraint_name match_option update_rule delete_rule",
    "information_schema_constraint_column_usage":
        "table_catalog table_schema table_name column_name constraint_catalog constraint_schema constraint_name",
    "information_schema_routines": "specific_schema specific_name routine_schema routine_name routine_type data_type",
    "information_schema_sequences": "sequence_catalog sequence_schema sequence_name data_type",
    "information_schema_triggers": "trigger_catalog trigger_schema trigger_name event_object_table",
    "information_schema_table_privileges": "grantor grantee table_catalog table_schema table_name privilege_type",
    "information_schema_column_privileges":
        "grantor grantee table_catalog table_schema table_name column_name privilege_type",
    "information_schema_parameters": "specific_schema specific_name ordinal_position:4 parameter_name data_type",
}.items()}  # fmt: skip
"""Tables of things that are not here."""
_TYPE = _schema(
    "oid:o typname typnamespace:o typowner:o typlen:2 typbyval:b typtype typcategory typispreferred:b typisdefined:b "
    "typdelim typrelid:o typsubscript typelem:o typarray:o typinput typoutput typreceive typsend typmodin typmodout "
    "typanalyze typalign typstorage typnotnull:b typbasetype:o typtypmod:4 typndims:4 typcollation:o typdefaultbin "
    "typdefault typacl:T"
)
NAMES = frozenset({*SCHEMAS, *_ALWAYS_EMPTY, "pg_type", "pg_namespace", "pg_am", "pg_tablespace"})
"""All tables; those of ``information_schema`` begin with its name."""


def oid_of(*name: str) -> int:
    """The number of an object, above those that PostgreSQL has for its own."""
    return 16_384 + zlib.crc32("\0".join(name).encode()) % (2**31 - 16_384)


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows with what they have; other columns are 0, empty or false, as PostgreSQL fills them, lists NULL."""
    held = list(rows)
    arrays = []
    for field in schema:
        default = _DEFAULTS.get(field.type)
        arrays.append(pa.array([row.get(field.name, default) for row in held], field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


_DEFAULTS: dict[pa.DataType, Any] = {_OID: 0, _INT2: 0, _INT4: 0, _INT8: 0, _BOOL: False, _FLOAT: 0.0}


def always() -> dict[str, pa.Table]:
    """Tables that are the same for everybody."""
    found = {name: schema.empty_table() for name, schema in _ALWAYS_EMPTY.items()}
    rows: list[dict[str, Any]] = []
    for t in TYPES.values():
        base = {
            "typnamespace": _PG_CATALOG, "typowner": 10, "typtype": "p" if t.name == "unknown" else "b", "typisdefined":
            True, "typdelim": ",", "typtypmod": -1, "typalign": "i", "typstorage": "p",
        }  # fmt: skip
        rows.append({
            **base, "oid": t.oid, "typname": t.name, "typlen": t.size, "typcategory": t.category, "typarray": t.array,
            "typinput": f"{t.name}in", "typreceive": f"{t.name}recv", "typoutput": f"{t.name}out",
        })  # fmt: skip
        if t.array:
            rows.append({
                **base, "oid": t.array, "typname": f"_{t.name}", "typlen": -1, "typcategory": "A", "typelem": t.oid,
                "typinput": "array_in", "typreceive": "array_recv", "typoutput": "array_out",
            })  # fmt: skip
    found["pg_type"] = _table(_TYPE, rows)
    named = _schema("oid:o typname long typlen:2 typelem:o")
    found["types_named"] = _table(named, [{**r, "long": LONG_NAMES.get(r["typname"], r["typname"])} for r in rows])
    found["pg_namespace"] = _table(_schema("oid:o nspname nspowner:o nspacl:T"), [
        {"oid": oid, "nspname": name, "nspowner": 10} for name, oid in _NAMESPACES.items()
    ])  # fmt: skip
    found["pg_am"] = _table(_schema("oid:o amname amhandler amtype"), [
        {"oid": 2, "amname": "heap", "amtype": "t"}, {"oid": 403, "amname": "btree", "amtype": "i"},
    ])  # fmt: skip
    found["pg_tablespace"] = _table(_schema("oid:o spcname spcowner:o spcacl:T spcoptions:T"), [
        {"oid": 1663, "spcname": "pg_default", "spcowner": 10},
    ])  # fmt: skip
    return found


def of_session(service: Service, session: Session, database: str, parameters: Mapping[str, str]) -> dict[str, pa.Table]:
    """The tables as one user sees them."""
    relations, queries = service.relations(session), service.queries(session, ended=False)
    owners = {info.name: info.owner or "" for info in service.streams(session)}
    owners |= {info.name: info.owner or "" for info in relations} | {info.name: info.owner or "" for info in queries}
    users = sorted({session.user, *owners.values()} - {""})
    keys = {info.name: info.key for info in relations if info.key}
    rows = _Rows(database, session, keys, owners, {info.name: info.text for info in queries})
    for name, schema in service.tables(session).items():
        rows.add(name, schema)
    made = {name: _table(schema, rows.of.get(name, ())) for name, schema in SCHEMAS.items()}
    made["pg_database"] = _table(SCHEMAS["pg_database"], [{
        "oid": oid_of("database"), "datname": database, "datdba": _role(session.user), "encoding": 6, "datlocprovider":
        "c", "datallowconn": True, "datconnlimit": -1, "dattablespace": 1663, "datcollate": "C", "datctype": "C",
    }])  # fmt: skip
    made |= _who(service, session, users)
    made["pg_settings"] = _table(SCHEMAS["pg_settings"], [{
        "name": name, "setting": value, "category": "Penstock", "context": "user", "vartype": "string", "source":
        "default", "boot_val": value, "reset_val": value, "short_desc": "",
    } for name, value in parameters.items()])  # fmt: skip
    made["information_schema_schemata"] = _table(SCHEMAS["information_schema_schemata"], [
        {"catalog_name": database, "schema_name": name, "schema_owner": session.user} for name in _NAMESPACES
    ])  # fmt: skip
    return made


def _who(service: Service, session: Session, users: Sequence[str]) -> dict[str, pa.Table]:
    """Users and roles, as far as this one may know them, and who is in which role."""
    listed = {row["user"]: row["roles"] for row in _shown(service, session, "USERS")}
    roles = [row["role"] for row in _shown(service, session, "ROLES")]
    users = sorted({*users, *listed})
    made = [
        {"rolname": "penstock", "rolinherit": True, "rolconnlimit": -1, "oid": 10},
        *({"rolname": role, "rolinherit": True, "rolconnlimit": -1, "oid": _role(role)} for role in roles),
    ]
    for user in users:
        admin = session.admin and user == session.user
        made.append({
            "rolname": user, "rolsuper": admin, "rolinherit": True, "rolcanlogin": True, "rolcreaterole": admin,
            "rolconnlimit": -1, "rolpassword": "********", "oid": _role(user),
        })  # fmt: skip
    members = [
        {"roleid": _role(role), "member": _role(user), "grantor": 10}
        for user, said in listed.items()
        for role in filter(None, said.split(", "))
    ]
    known = [{"usename": user, "usesysid": _role(user), "passwd": "********"} for user in users]
    tables = {"pg_roles": made, "pg_auth_members": members, "pg_user": known}
    return {name: _table(SCHEMAS[name], rows) for name, rows in tables.items()}


def _shown(service: Service, session: Session, what: str) -> list[dict[str, Any]]:
    """What SHOW lists for this user."""
    table = service.execute(session, f"SHOW {what}")[0].table
    return [] if table is None else list(table.to_pylist())


def _role(user: str) -> int:
    return oid_of("role", user)


class _Rows:
    """Rows of the catalogs, gathered table by table."""

    def __init__(
        self, database: str, session: Session, keys: Mapping[str, tuple[str, ...]], owners: Mapping[str, str],
        texts: Mapping[str, str | None],
    ) -> None:  # fmt: skip
        self.of: dict[str, list[dict[str, Any]]] = {}
        self._database, self._session = database, session
        self._keys, self._owners, self._texts = keys, owners, texts

    def _put(self, table: str, **row: Any) -> None:
        self.of.setdefault(table, []).append(row)

    def add(self, full: str, schema: pa.Schema) -> None:
        """A table that a plain SELECT may read."""
        inside = full.startswith("sys.")
        name = full.removeprefix("sys.") if inside else full
        place, namespace = ("sys", _SYS) if inside else ("public", _PUBLIC)
        query = not inside and name in self._texts
        number = oid_of("table", full)
        owner = self._owners.get(full) or self._session.user
        key = () if inside else tuple(k for k in self._keys.get(name, ()) if k in schema.names)
        self._put(
            "pg_class", oid=number, relname=name, relnamespace=namespace, relowner=_role(owner), relam=2,
            reltuples=-1.0, relpersistence="p",
            relkind="m" if query else "r", relnatts=len(schema), relispopulated=True,
            relreplident="d", relhasindex=bool(key),
        )  # fmt: skip
        self._columns(number, place, name, schema, key)
        where = {"table_catalog": self._database, "table_schema": place, "table_name": name}
        kind = "VIEW" if query else "BASE TABLE"
        self._put(
            "information_schema_tables",
            **where,
            table_type=kind,
            is_insertable_into="NO" if query else "YES",
            is_typed="NO",
        )
        if query:
            text = self._texts.get(name)
            self._put("information_schema_views", **where, view_definition=text, check_option="NONE", is_updatable="NO")
            self._put(
                "pg_matviews",
                schemaname=place,
                matviewname=name,
                matviewowner=owner,
                ispopulated=True,
                definition=text,
                oid=number,
            )
        else:
            self._put("pg_tables", schemaname=place, tablename=name, tableowner=owner, hasindexes=bool(key))
        if key:
            self._key(number, name, owner, schema, key)

    def _columns(self, number: int, place: str, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
        for at, field in enumerate(schema, 1):
            oid, size, modifier = types.of(field.type)
            required = field.name in key or not field.nullable
            known = types.BY_OID.get(oid)
            long = "ARRAY" if known is None else LONG_NAMES.get(known.name, known.name)
            self._put(
                "pg_attribute", attrelid=number, attname=field.name, atttypid=oid, attstattarget=-1, attlen=size,
                attnum=at, attndims=0 if known else 1, attcacheoff=-1, atttypmod=modifier, attalign="i", attstorage="p",
                attcompression="", attnotnull=required, attidentity="", attgenerated="", attislocal=True,
            )  # fmt: skip
            decimal = pa.types.is_decimal(field.type)
            self._put(
                "information_schema_columns", table_catalog=self._database, table_schema=place, table_name=name,
                column_name=field.name, ordinal_position=at, is_nullable="NO" if required else "YES", data_type=long,
                udt_catalog=self._database, udt_schema="pg_catalog",
                udt_name=known.name if known else f"_{types.BY_ARRAY[oid].name}", is_identity="NO",
                is_generated="NEVER", is_updatable="NO", numeric_precision=field.type.precision if decimal else None,
                numeric_scale=field.type.scale if decimal else None, character_maximum_length=None,
                character_octet_length=None, numeric_precision_radix=None, datetime_precision=None,
                interval_precision=None, is_self_referencing="NO", dtd_identifier=str(at),
            )  # fmt: skip

    def _key(self, table: int, name: str, owner: str, schema: pa.Schema, key: Sequence[str]) -> None:
        """The primary key of a relation: an index and a constraint."""
        index, constraint = f"{name}_pkey", oid_of("constraint", name)
        number = oid_of("index", name)
        places = [schema.get_field_index(k) + 1 for k in key]
        said = ", ".join('"' + k.replace('"', '""') + '"' for k in key)
        self._put(
            "pg_class", oid=number, relname=index, relnamespace=_PUBLIC, relowner=_role(owner), relam=403, relkind="i",
            relpersistence="p", relnatts=len(key), relispopulated=True, relreplident="n",
        )  # fmt: skip
        for at, column in enumerate(key, 1):
            oid, size, modifier = types.of(schema.field(column).type)
            self._put(
                "pg_attribute", attrelid=number, attname=column, atttypid=oid, attlen=size, attnum=at,
                atttypmod=modifier, attidentity="", attgenerated="", attislocal=True, attstattarget=-1,
            )  # fmt: skip
        self._put(
            "pg_index", indexrelid=number, indrelid=table, indnatts=len(key), indnkeyatts=len(key), indisunique=True,
            indisprimary=True, indimmediate=True, indisvalid=True, indisready=True, indislive=True, indkey=places,
            indcollation=[0] * len(key), indclass=[0] * len(key), indoption=[0] * len(key),
            definition=f'CREATE UNIQUE INDEX "{index}" ON public."{name}" USING btree ({said})',
        )  # fmt: skip
        self._put(
            "pg_constraint", oid=constraint, conname=index, connamespace=_PUBLIC, contype="p", convalidated=True,
            conrelid=table, conindid=number, confupdtype="", confdeltype="", confmatchtype="", conislocal=True,
            connoinherit=True, conkey=places, definition=f"PRIMARY KEY ({said})",
        )  # fmt: skip
        where = {
            "constraint_catalog": self._database, "constraint_schema": "public", "constraint_name": index,
            "table_catalog": self._database, "table_schema": "public", "table_name": name,
        }  # fmt: skip
        self._put(
            "information_schema_table_constraints",
            **where,
            constraint_type="PRIMARY KEY",
            is_deferrable="NO",
            initially_deferred="NO",
            enforced="YES",
        )
        for at, column in enumerate(key, 1):
            self._put(
                "information_schema_key_column_usage",
                **where,
                column_name=column,
                ordinal_position=at,
                position_in_unique_constraint=None,
            )
