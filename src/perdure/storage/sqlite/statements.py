"""Every statement of the SQLite store, by name. A test explains each read and refuses one without an index.

`INDEXED BY` makes a statement fail rather than read a whole table, should the index ever change.
"""

from typing import Final

_ENTRY = "id, conversation, seq, kind, version, messages, data, task, head, edits"
_TASK = (
    "id, conversation, kind, version, status, coalesce(input, (SELECT content FROM body WHERE body.id = task.id)), "
    "state, memos, owner, background, abort, waits, deadline, unused, started_at, ended_at"
)
_LIGHT = "id, conversation, kind, status, owner, background, abort, waits, deadline, unused"
_SUBMISSION = (
    "id, conversation, status, kind, "
    "coalesce(content, (SELECT content FROM body WHERE body.id = submission.id)), "
    "digest, request_id, when_busy, notify_task, notify_key, entry, answer, reason, detail"
)
_DOCUMENT = "id, kind, scope, scope_id, key, rewindable, fork, created, retired"

# The filters that narrow what an index finds: each holds where its parameter is NULL.
# ?1 cursor, ?2 limit, ?3 conversation, ?4 owner, ?5 kind, ?6 status, ?7 ended, ?8 background, ?9 abort, ?10 waited on
_TASK_FILTERS = (
    "(?3 IS NULL OR conversation = ?3) AND (?4 IS NULL OR owner = ?4) AND (?5 IS NULL OR kind = ?5) "
    "AND (?6 IS NULL OR status = ?6) AND (?7 IS NULL OR ended = ?7) AND (?8 IS NULL OR background = ?8) "
    "AND (?9 IS NULL OR abort = ?9) AND (?10 IS NULL OR 1)"
)

READS: Final = {
    "head": "SELECT next_id, seq, epoch, schema_version FROM meta WHERE id = 1",
    "name": "SELECT text FROM name WHERE id = ?1",
    "name_id": "SELECT id FROM name WHERE text = ?1",
    "conversation": "SELECT id, seq, parent, fork_entry, owner FROM conversation WHERE id = ?1",
    "entry": f"SELECT {_ENTRY} FROM entry WHERE id = ?1",
    "task": f"SELECT {_TASK} FROM task WHERE id = ?1",
    "submission": f"SELECT {_SUBMISSION} FROM submission WHERE id = ?1",
    "submission_by_request": f"SELECT {_SUBMISSION} FROM submission INDEXED BY submission_request "
    "WHERE conversation = ?1 AND request_id = ?2",
    "blob": "SELECT digest, media_type, content FROM blob WHERE digest = ?1",
    "conversations": "SELECT id, seq, parent, fork_entry, owner FROM conversation WHERE id > ?1 ORDER BY id LIMIT ?2",
    "conversations_owned": "SELECT id, seq, parent, fork_entry, owner FROM conversation "
    "INDEXED BY conversation_owner WHERE owner = ?3 AND id > ?1 ORDER BY id LIMIT ?2",
    "entries_oldest": f"SELECT {_ENTRY} FROM entry INDEXED BY entry_conversation "
    "WHERE conversation = ?1 AND id > ?2 AND id <= ?3 ORDER BY id LIMIT ?4",
    "entries_newest": f"SELECT {_ENTRY} FROM entry INDEXED BY entry_conversation "
    "WHERE conversation = ?1 AND id > ?2 AND id <= ?3 ORDER BY id DESC LIMIT ?4",
    "latest_head": f"SELECT {_ENTRY} FROM entry INDEXED BY entry_head "
    "WHERE conversation = ?1 AND id <= ?2 AND head IS NOT NULL ORDER BY id DESC LIMIT 1",
    "tasks_waiting": f"SELECT {_TASK} FROM task INDEXED BY task_live WHERE ended = 0 AND id > ?1 "
    f"AND instr(waits, ',' || ?10 || ',') > 0 AND {_TASK_FILTERS} ORDER BY id LIMIT ?2",
    "tasks_owned": f"SELECT {_TASK} FROM task INDEXED BY task_owner "
    f"WHERE owner = ?4 AND id > ?1 AND {_TASK_FILTERS} ORDER BY id LIMIT ?2",
    "tasks_in_conversation": f"SELECT {_TASK} FROM task INDEXED BY task_conversation "
    f"WHERE conversation = ?3 AND id > ?1 AND {_TASK_FILTERS} ORDER BY id LIMIT ?2",
    "tasks_live_in_conversation": f"SELECT {_TASK} FROM task INDEXED BY task_live "
    f"WHERE conversation = ?3 AND ended = 0 AND id > ?1 AND {_TASK_FILTERS} ORDER BY id LIMIT ?2",
    "tasks_live": f"SELECT {_TASK} FROM task INDEXED BY task_live "
    f"WHERE ended = 0 AND id > ?1 AND {_TASK_FILTERS} ORDER BY id LIMIT ?2",
    "deadlines": f"SELECT {_LIGHT} FROM task INDEXED BY task_deadline "
    "WHERE deadline <= ?1 ORDER BY deadline, id LIMIT ?2",
    "live": f"SELECT {_LIGHT} FROM task INDEXED BY task_live WHERE ended = 0 AND id > ?1 ORDER BY id LIMIT ?2",
    "submissions_in_conversation": f"SELECT {_SUBMISSION} FROM submission INDEXED BY submission_conversation "
    "WHERE conversation = ?3 AND id > ?1 AND (?4 IS NULL OR status = ?4) AND (?5 IS NULL OR ended = ?5) "
    "ORDER BY id LIMIT ?2",
    "submissions_live_in_conversation": f"SELECT {_SUBMISSION} FROM submission INDEXED BY submission_live "
    "WHERE conversation = ?3 AND ended = 0 AND id > ?1 AND (?4 IS NULL OR status = ?4) AND (?5 IS NULL OR 1) "
    "ORDER BY id LIMIT ?2",
    "submissions_live": f"SELECT {_SUBMISSION} FROM submission INDEXED BY submission_live "
    "WHERE ended = 0 AND id > ?1 AND (?3 IS NULL OR 1) AND (?4 IS NULL OR status = ?4) AND (?5 IS NULL OR 1) "
    "ORDER BY id LIMIT ?2",
    "documents_now": f"SELECT {_DOCUMENT} FROM document INDEXED BY document_alive "
    "WHERE scope = ?3 AND scope_id = ?4 AND retired IS NULL AND id > ?1 AND (?5 IS NULL OR kind = ?5) "
    "ORDER BY id LIMIT ?2",
    "documents_at": f"SELECT {_DOCUMENT} FROM document INDEXED BY document_scope "
    "WHERE scope = ?3 AND scope_id = ?4 AND created <= ?6 AND (retired IS NULL OR retired > ?6) AND id > ?1 "
    "AND (?5 IS NULL OR kind = ?5) ORDER BY id LIMIT ?2",
    "documents_ever": f"SELECT {_DOCUMENT} FROM document INDEXED BY document_scope "
    "WHERE scope = ?3 AND scope_id = ?4 AND id > ?1 AND (?5 IS NULL OR kind = ?5) ORDER BY id LIMIT ?2",
    "members_now": f"SELECT {_DOCUMENT} FROM document WHERE scope = ?1 AND scope_id = ?2 "
    "AND kind = ?3 AND key >= ?4 AND key < ?5 AND key IS NOT NULL AND retired IS NULL ORDER BY key LIMIT ?6",
    "members_at": f"SELECT {_DOCUMENT} FROM document WHERE scope = ?1 AND scope_id = ?2 "
    "AND kind = ?3 AND key >= ?4 AND key < ?5 AND created <= ?7 AND (retired IS NULL OR retired > ?7) "
    "ORDER BY key LIMIT ?6",
    "document_now": f"SELECT {_DOCUMENT} FROM document WHERE +scope = ?1 AND scope_id = ?2 "
    "AND kind = ?3 AND key IS ?4 AND retired IS NULL ORDER BY id DESC LIMIT 1",
    "document_at": f"SELECT {_DOCUMENT} FROM document WHERE +scope = ?1 AND scope_id = ?2 "
    "AND kind = ?3 AND key IS ?4 AND created <= ?5 AND (retired IS NULL OR retired > ?5) ORDER BY id DESC LIMIT 1",
    "document": f"SELECT {_DOCUMENT} FROM document WHERE id = ?1",
    "revisions": "SELECT document, seq, base, version, body FROM revision WHERE document = ?1 AND seq <= ?2 "
    "AND seq >= (SELECT seq FROM revision WHERE document = ?1 AND seq <= ?2 AND base = 1 ORDER BY seq DESC LIMIT 1) "
    "ORDER BY seq",
    "document_state": "SELECT rewindable, EXISTS (SELECT 1 FROM revision WHERE document = ?1) "
    "FROM document WHERE id = ?1",
    "newest": "SELECT max("
    + ", ".join(
        f"coalesce((SELECT max(id) FROM {table}), 0)"
        for table in ("conversation", "entry", "task", "submission", "document")
    )
    + "), coalesce((SELECT seq FROM entry WHERE id = (SELECT max(id) FROM entry)), 0)",
}

WRITES: Final = {
    "epoch": "UPDATE meta SET epoch = epoch + 1 WHERE id = 1",
    "head": "UPDATE meta SET seq = ?1, next_id = ?2 WHERE id = 1",
    "name": "INSERT INTO name(text) VALUES (?1)",
    "conversation": "INSERT INTO conversation VALUES (?1, ?2, ?3, ?4, ?5)",
    "entry": "INSERT INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    "task": "INSERT INTO task VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    # The ordinary update: nothing of it stands in an index, and the row's size hardly changes.
    "task_step": "UPDATE task SET version = ?1, status = ?2, abort = ?3, unused = ?4, started_at = ?5, waits = ?6, "
    "state = ?7, memos = ?8 WHERE id = ?9 AND conversation = ?10 AND kind = ?11 AND background = ?12 AND owner IS ?13 "
    "AND ended = 0 AND deadline IS NULL AND ended_at IS NULL",
    "task_end": "UPDATE task SET version = ?1, status = ?2, abort = ?3, unused = ?4, started_at = ?5, waits = ?6, "
    "state = ?7, memos = ?8, ended = 1, deadline = NULL, ended_at = ?14 WHERE id = ?9 AND conversation = ?10 "
    "AND kind = ?11 AND background = ?12 AND owner IS ?13 AND ended = 0",
    "task_whole": "UPDATE task SET conversation = ?2, kind = ?3, version = ?4, status = ?5, ended = ?6, "
    "background = ?7, abort = ?8, unused = ?9, owner = ?10, deadline = ?11, started_at = ?12, ended_at = ?13, "
    "waits = ?14, state = ?15, memos = ?16 WHERE id = ?1",
    "task_input": "UPDATE task SET input = ?2 WHERE id = ?1",
    "submission": "INSERT INTO submission VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    # What changes of a submission after it was admitted, as long as its content is small.
    "submission_step": "UPDATE submission SET status = ?3, entry = ?4, answer = ?5, reason = ?6, detail = ?7 "
    "WHERE id = ?1 AND conversation = ?2 AND digest = ?8 AND ended = 0 AND request_id IS ?9 AND notify_task IS ?10 "
    "AND notify_key IS ?11 AND when_busy = ?12 AND kind = ?13 AND content = ?14",
    "submission_end": "UPDATE submission SET status = ?3, entry = ?4, answer = ?5, reason = ?6, detail = ?7, ended = 1 "
    "WHERE id = ?1 AND conversation = ?2 AND digest = ?8 AND ended = 0 AND request_id IS ?9 AND notify_task IS ?10 "
    "AND notify_key IS ?11 AND when_busy = ?12 AND kind = ?13 AND content = ?14",
    "submission_whole": "UPDATE submission SET conversation = ?2, status = ?3, ended = ?4, kind = ?5, when_busy = ?6, "
    "notify_task = ?7, entry = ?8, answer = ?9, request_id = ?10, notify_key = ?11, reason = ?12, detail = ?13, "
    "digest = ?14, content = ?15 WHERE id = ?1",
    "body": "INSERT OR REPLACE INTO body VALUES (?1, ?2)",
    "no_body": "DELETE FROM body WHERE id = ?1",
    "document": "INSERT INTO document VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    "document_whole": "UPDATE document SET kind = ?2, scope = ?3, scope_id = ?4, rewindable = ?5, fork = ?6, "
    "created = ?7, retired = ?8, key = ?9 WHERE id = ?1",
    "document_copy": "INSERT INTO revision SELECT ?3, seq, base, version, body FROM revision "
    "WHERE document = ?1 AND seq <= ?2 AND seq >= (SELECT seq FROM revision "
    "WHERE document = ?1 AND seq <= ?2 AND base = 1 ORDER BY seq DESC LIMIT 1)",
    "revision": "INSERT INTO revision VALUES (?1, ?2, ?3, ?4, ?5)",
    # With the whole key of the old row, though it is the only one: else the engine makes a table of rows to change.
    "only_revision": "UPDATE revision SET seq = ?2, base = ?3, version = ?4, body = ?5 "
    "WHERE document = ?1 AND seq = ?6",
    "forget_revisions": "DELETE FROM revision WHERE document = ?1 AND seq < ?2",
    "blob": "INSERT INTO blob VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
}
