//! Relations that are queries of others, as in PostgreSQL.
//!
//! A query gives columns by their names, in any order: those of the relation that it does not give
//! are NULL.

/// The query of a relation.
pub(crate) fn view(full_name: &str) -> Option<&'static str> {
    VIEWS.iter().find(|(name, _)| *name == full_name).map(|(_, query)| *query)
}

const VIEWS: [(&str, &str); 42] = [
    (
        "pg_catalog.pg_sequences",
        "select n.nspname as schemaname, c.relname as sequencename, \
         pg_catalog.pg_get_userbyid(c.relowner) as sequenceowner, \
         s.seqtypid::pg_catalog.regtype as data_type, s.seqstart as start_value, \
         s.seqmin as min_value, s.seqmax as max_value, s.seqincrement as increment_by, \
         s.seqcycle as cycle, s.seqcache as cache_size from pg_catalog.pg_sequence s \
         join pg_catalog.pg_class c on c.oid = s.seqrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace",
    ),
    (
        "information_schema.sequences",
        "select pg_catalog.current_database() as sequence_catalog, n.nspname as sequence_schema, \
         c.relname as sequence_name, pg_catalog.format_type(s.seqtypid, null) as data_type, \
         case s.seqtypid when 21 then 16 when 23 then 32 else 64 end as numeric_precision, \
         2 as numeric_precision_radix, 0 as numeric_scale, \
         s.seqstart::pg_catalog.text as start_value, s.seqmin::pg_catalog.text as minimum_value, \
         s.seqmax::pg_catalog.text as maximum_value, \
         s.seqincrement::pg_catalog.text as increment, \
         case when s.seqcycle then 'YES' else 'NO' end as cycle_option \
         from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where c.oid not in (select y.objid from pg_catalog.pg_depend y \
         where y.classid = 1259 and y.deptype = 'i')",
    ),
    (
        "pg_catalog.pg_roles",
        "select oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, \
         rolreplication, rolconnlimit, '********' as rolpassword, rolvaliduntil, rolbypassrls \
         from pg_catalog.pg_authid",
    ),
    (
        "pg_catalog.pg_user",
        "select rolname as usename, oid as usesysid, rolcreatedb as usecreatedb, \
         rolsuper as usesuper, rolreplication as userepl, rolbypassrls as usebypassrls, \
         '********' as passwd from pg_catalog.pg_authid",
    ),
    (
        "pg_catalog.pg_shadow",
        "select rolname as usename, oid as usesysid, rolcreatedb as usecreatedb, \
         rolsuper as usesuper, rolreplication as userepl, rolbypassrls as usebypassrls \
         from pg_catalog.pg_authid",
    ),
    (
        "pg_catalog.pg_tables",
        "select n.nspname as schemaname, c.relname as tablename, \
         pg_catalog.pg_get_userbyid(c.relowner) as tableowner, c.relhasindex as hasindexes, \
         c.relhasrules as hasrules, c.relhastriggers as hastriggers, \
         c.relrowsecurity as rowsecurity from pg_catalog.pg_class c \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p')",
    ),
    (
        "pg_catalog.pg_views",
        "select n.nspname as schemaname, c.relname as viewname, \
         pg_catalog.pg_get_userbyid(c.relowner) as viewowner, \
         pg_catalog.pg_get_viewdef(c.oid) as definition from pg_catalog.pg_class c \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind = 'v'",
    ),
    (
        "pg_catalog.pg_indexes",
        "select n.nspname as schemaname, c.relname as tablename, i.relname as indexname, \
         pg_catalog.pg_get_indexdef(i.oid) as indexdef from pg_catalog.pg_index x \
         join pg_catalog.pg_class c on c.oid = x.indrelid \
         join pg_catalog.pg_class i on i.oid = x.indexrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace",
    ),
    (
        "pg_catalog.pg_stat_all_tables",
        "select c.oid as relid, n.nspname as schemaname, c.relname \
         from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where c.relkind in ('r', 't', 'm')",
    ),
    (
        "pg_catalog.pg_stat_user_tables",
        "select * from pg_catalog.pg_stat_all_tables \
         where schemaname not in ('pg_catalog', 'information_schema')",
    ),
    (
        "pg_catalog.pg_stat_all_indexes",
        "select c.oid as relid, i.oid as indexrelid, n.nspname as schemaname, c.relname, \
         i.relname as indexrelname from pg_catalog.pg_index x \
         join pg_catalog.pg_class c on c.oid = x.indrelid \
         join pg_catalog.pg_class i on i.oid = x.indexrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace",
    ),
    (
        "pg_catalog.pg_stat_user_indexes",
        "select * from pg_catalog.pg_stat_all_indexes \
         where schemaname not in ('pg_catalog', 'information_schema')",
    ),
    (
        "pg_catalog.pg_stat_sys_tables",
        "select * from pg_catalog.pg_stat_all_tables \
         where schemaname in ('pg_catalog', 'information_schema')",
    ),
    (
        "pg_catalog.pg_stat_sys_indexes",
        "select * from pg_catalog.pg_stat_all_indexes \
         where schemaname in ('pg_catalog', 'information_schema')",
    ),
    ("pg_catalog.pg_statio_all_tables", "select * from pg_catalog.pg_stat_all_tables"),
    ("pg_catalog.pg_statio_user_tables", "select * from pg_catalog.pg_stat_user_tables"),
    ("pg_catalog.pg_statio_sys_tables", "select * from pg_catalog.pg_stat_sys_tables"),
    ("pg_catalog.pg_statio_all_indexes", "select * from pg_catalog.pg_stat_all_indexes"),
    ("pg_catalog.pg_statio_user_indexes", "select * from pg_catalog.pg_stat_user_indexes"),
    ("pg_catalog.pg_statio_sys_indexes", "select * from pg_catalog.pg_stat_sys_indexes"),
    (
        "pg_catalog.pg_statio_all_sequences",
        "select c.oid as relid, n.nspname as schemaname, c.relname \
         from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where c.relkind = 'S'",
    ),
    ("pg_catalog.pg_statio_user_sequences", "select * from pg_catalog.pg_statio_all_sequences"),
    (
        "information_schema.administrable_role_authorizations",
        "select * from information_schema.applicable_roles where is_grantable = 'YES'",
    ),
    (
        "information_schema.collations",
        "select pg_catalog.current_database() as collation_catalog, \
         'pg_catalog' as collation_schema, collname as collation_name, \
         'NO PAD' as pad_attribute from pg_catalog.pg_collation",
    ),
    (
        "information_schema.collation_character_set_applicability",
        "select pg_catalog.current_database() as collation_catalog, \
         'pg_catalog' as collation_schema, collname as collation_name, \
         'UTF8' as character_set_name from pg_catalog.pg_collation",
    ),
    (
        "information_schema.column_privileges",
        "select t.grantor, t.grantee, t.table_catalog, t.table_schema, t.table_name, \
         a.attname as column_name, t.privilege_type, t.is_grantable \
         from information_schema.table_privileges t \
         join pg_catalog.pg_namespace n on n.nspname = t.table_schema \
         join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = t.table_name \
         join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 \
         where t.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES')",
    ),
    (
        "information_schema.role_column_grants",
        "select p.* from information_schema.column_privileges p where p.grantee <> 'PUBLIC'",
    ),
    (
        "information_schema.element_types",
        "select pg_catalog.current_database() as object_catalog, n.nspname as object_schema, \
         c.relname as object_name, 'TABLE' as object_type, \
         a.attnum::pg_catalog.text as collection_type_identifier, \
         pg_catalog.format_type(e.oid, null) as data_type, \
         pg_catalog.current_database() as udt_catalog, 'pg_catalog' as udt_schema, \
         e.typname as udt_name, 'a' || a.attnum::pg_catalog.text as dtd_identifier \
         from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         join pg_catalog.pg_type t on t.oid = a.atttypid \
         join pg_catalog.pg_type e on e.oid = t.typelem \
         where a.attnum > 0 and c.relkind in ('r', 'v', 'f', 'p') and t.typelem <> 0 \
         and t.typlen = -1",
    ),
    (
        "information_schema.information_schema_catalog_name",
        "select pg_catalog.current_database() as catalog_name",
    ),
    (
        "information_schema.schemata",
        "select pg_catalog.current_database() as catalog_name, n.nspname as schema_name, \
         pg_catalog.pg_get_userbyid(n.nspowner) as schema_owner from pg_catalog.pg_namespace n",
    ),
    (
        "information_schema.tables",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
         c.relname as table_name, \
         case c.relkind when 'v' then 'VIEW' when 'f' then 'FOREIGN' else 'BASE TABLE' end \
         as table_type, \
         case when c.relkind in ('r', 'p') then 'YES' else 'NO' end as is_insertable_into, \
         'NO' as is_typed from pg_catalog.pg_class c \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where c.relkind in ('r', 'v', 'f', 'p')",
    ),
    ("information_schema.columns", COLUMNS),
    (
        "information_schema.table_constraints",
        "select pg_catalog.current_database() as constraint_catalog, \
         n.nspname as constraint_schema, k.conname as constraint_name, \
         pg_catalog.current_database() as table_catalog, m.nspname as table_schema, \
         c.relname as table_name, \
         case k.contype when 'c' then 'CHECK' when 'f' then 'FOREIGN KEY' \
         when 'p' then 'PRIMARY KEY' when 'u' then 'UNIQUE' end as constraint_type, \
         case when k.condeferrable then 'YES' else 'NO' end as is_deferrable, \
         case when k.condeferred then 'YES' else 'NO' end as initially_deferred, 'YES' as enforced, \
         case when k.contype = 'u' then 'YES' end as nulls_distinct \
         from pg_catalog.pg_constraint k \
         join pg_catalog.pg_namespace n on n.oid = k.connamespace \
         join pg_catalog.pg_class c on c.oid = k.conrelid \
         join pg_catalog.pg_namespace m on m.oid = c.relnamespace \
         union all select pg_catalog.current_database(), n.nspname, \
         n.oid::pg_catalog.text || '_' || c.oid::pg_catalog.text || '_' \
         || a.attnum::pg_catalog.text || '_not_null', pg_catalog.current_database(), n.nspname, \
         c.relname, 'CHECK', 'NO', 'NO', 'YES', null from pg_catalog.pg_attribute a \
         join pg_catalog.pg_class c on c.oid = a.attrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where a.attnotnull and c.relkind in ('r', 'p')",
    ),
    (
        "information_schema.key_column_usage",
        "select pg_catalog.current_database() as constraint_catalog, \
         n.nspname as constraint_schema, k.conname as constraint_name, \
         pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
         c.relname as table_name, a.attname as column_name, \
         pg_catalog.array_position(k.conkey, a.attnum) as ordinal_position, \
         case when k.contype = 'f' then pg_catalog.array_position(u.conkey, \
         (k.confkey)[pg_catalog.array_position(k.conkey, a.attnum)]) end \
         as position_in_unique_constraint from pg_catalog.pg_constraint k \
         join pg_catalog.pg_class c on c.oid = k.conrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any (k.conkey) \
         left join pg_catalog.pg_constraint u on u.conindid = k.conindid \
         and u.contype in ('p', 'u') and k.contype = 'f' \
         where k.contype in ('p', 'u', 'f')",
    ),
    (
        "information_schema.referential_constraints",
        "select pg_catalog.current_database() as constraint_catalog, \
         n.nspname as constraint_schema, k.conname as constraint_name, \
         pg_catalog.current_database() as unique_constraint_catalog, \
         case k.confmatchtype when 'f' then 'FULL' when 'p' then 'PARTIAL' \
         when 's' then 'NONE' end as match_option, \
         case k.confupdtype when 'c' then 'CASCADE' when 'n' then 'SET NULL' \
         when 'd' then 'SET DEFAULT' when 'r' then 'RESTRICT' when 'a' then 'NO ACTION' end \
         as update_rule, \
         case k.confdeltype when 'c' then 'CASCADE' when 'n' then 'SET NULL' \
         when 'd' then 'SET DEFAULT' when 'r' then 'RESTRICT' when 'a' then 'NO ACTION' end \
         as delete_rule, u.conname as unique_constraint_name, \
         m.nspname as unique_constraint_schema from pg_catalog.pg_constraint k \
         join pg_catalog.pg_namespace n on n.oid = k.connamespace \
         left join pg_catalog.pg_constraint u on u.conindid = k.conindid \
         and u.contype in ('p', 'u') \
         left join pg_catalog.pg_namespace m on m.oid = u.connamespace where k.contype = 'f'",
    ),
    (
        "information_schema.constraint_column_usage",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
         c.relname as table_name, a.attname as column_name, \
         pg_catalog.current_database() as constraint_catalog, \
         n.nspname as constraint_schema, k.conname as constraint_name \
         from pg_catalog.pg_constraint k \
         join pg_catalog.pg_class c on c.oid = \
         case when k.contype = 'f' then k.confrelid else k.conrelid end \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         join pg_catalog.pg_attribute a on a.attrelid = c.oid \
         and a.attnum = any (case when k.contype = 'f' then k.confkey else k.conkey end)",
    ),
    (
        "information_schema.constraint_table_usage",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
         c.relname as table_name, pg_catalog.current_database() as constraint_catalog, \
         n.nspname as constraint_schema, k.conname as constraint_name \
         from pg_catalog.pg_constraint k \
         join pg_catalog.pg_class c on c.oid = \
         case when k.contype = 'f' then k.confrelid else k.conrelid end \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where k.contype in ('p', 'u', 'f')",
    ),
    (
        "information_schema.check_constraints",
        "select pg_catalog.current_database() as constraint_catalog, \
         n.nspname as constraint_schema, k.conname as constraint_name, \
         substring(pg_catalog.pg_get_constraintdef(k.oid) from 7) as check_clause \
         from pg_catalog.pg_constraint k \
         join pg_catalog.pg_namespace n on n.oid = k.connamespace where k.contype = 'c' \
         union all select pg_catalog.current_database(), n.nspname, \
         n.oid::pg_catalog.text || '_' || c.oid::pg_catalog.text || '_' \
         || a.attnum::pg_catalog.text || '_not_null', a.attname || ' IS NOT NULL' \
         from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where a.attnotnull and c.relkind in ('r', 'p')",
    ),
    (
        "information_schema.views",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
         c.relname as table_name, pg_catalog.pg_get_viewdef(c.oid) as view_definition, \
         'NONE' as check_option, 'NO' as is_updatable, 'NO' as is_insertable_into, \
         'NO' as is_trigger_updatable, 'NO' as is_trigger_deletable, \
         'NO' as is_trigger_insertable_into from pg_catalog.pg_class c \
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind = 'v'",
    ),
    (
        "information_schema.enabled_roles",
        "select rolname as role_name from pg_catalog.pg_authid \
         where pg_catalog.pg_has_role(oid, 'USAGE')",
    ),
    (
        "information_schema.applicable_roles",
        "select pg_catalog.pg_get_userbyid(m.member) as grantee, r.rolname as role_name, \
         case when m.admin_option then 'YES' else 'NO' end as is_grantable \
         from pg_catalog.pg_auth_members m join pg_catalog.pg_authid r on r.oid = m.roleid \
         where pg_catalog.pg_has_role(m.member, 'USAGE')",
    ),
    (
        "information_schema.character_sets",
        "select 'UTF8' as character_set_name, 'UCS' as character_repertoire, \
         'UTF8' as form_of_use, pg_catalog.current_database() as default_collate_catalog",
    ),
];

const COLUMNS: &str = "select pg_catalog.current_database() as table_catalog, \
     n.nspname as table_schema, c.relname as table_name, a.attname as column_name, \
     a.attnum as ordinal_position, pg_catalog.pg_get_expr(d.adbin, d.adrelid) as column_default, \
     case when a.attnotnull then 'NO' else 'YES' end as is_nullable, \
     case when t.typelem <> 0 and t.typlen = -1 then 'ARRAY' \
     else pg_catalog.format_type(a.atttypid, null) end as data_type, \
     case when a.atttypid in (1042, 1043) and a.atttypmod <> -1 then a.atttypmod - 4 end \
     as character_maximum_length, \
     case when a.atttypid in (25, 1042, 1043) then case when a.atttypid = 25 or a.atttypmod = -1 \
     then 1073741824 else (a.atttypmod - 4) * 4 end end as character_octet_length, \
     case a.atttypid when 21 then 16 when 23 then 32 when 20 then 64 when 700 then 24 \
     when 701 then 53 when 1700 then case when a.atttypmod <> -1 \
     then ((a.atttypmod - 4) >> 16) & 65535 end end as numeric_precision, \
     case when a.atttypid in (20, 21, 23, 700, 701) then 2 when a.atttypid = 1700 then 10 end \
     as numeric_precision_radix, \
     case when a.atttypid in (20, 21, 23) then 0 when a.atttypid = 1700 and a.atttypmod <> -1 \
     then (a.atttypmod - 4) & 65535 end as numeric_scale, \
     case when a.atttypid = 1082 then 0 when a.atttypid in (1083, 1114, 1184, 1186) \
     then case when a.atttypmod < 0 then 6 else a.atttypmod end end as datetime_precision, \
     pg_catalog.current_database() as udt_catalog, 'pg_catalog' as udt_schema, \
     t.typname as udt_name, a.attnum::pg_catalog.text as dtd_identifier, \
     'NO' as is_self_referencing, \
     case when a.attidentity in ('a', 'd') then 'YES' else 'NO' end as is_identity, \
     case a.attidentity when 'a' then 'ALWAYS' when 'd' then 'BY DEFAULT' end \
     as identity_generation, s.seqstart::pg_catalog.text as identity_start, \
     s.seqincrement::pg_catalog.text as identity_increment, \
     s.seqmax::pg_catalog.text as identity_maximum, \
     s.seqmin::pg_catalog.text as identity_minimum, \
     case when s.seqcycle then 'YES' else 'NO' end as identity_cycle, \
     case when a.attgenerated = '' then 'NEVER' else 'ALWAYS' end as is_generated, \
     case when c.relkind in ('r', 'p') then 'YES' else 'NO' end as is_updatable \
     from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
     join pg_catalog.pg_type t on t.oid = a.atttypid \
     left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum \
     left join (select y.refobjid, y.refobjsubid, q.* from pg_catalog.pg_depend y \
     join pg_catalog.pg_sequence q on q.seqrelid = y.objid \
     where y.classid = 1259 and y.deptype = 'i') s \
     on s.refobjid = a.attrelid and s.refobjsubid = a.attnum \
     where a.attnum > 0 and c.relkind in ('r', 'v', 'f', 'p')";
