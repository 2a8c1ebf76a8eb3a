-- One session. Ids come from one sequence for all tables; seq is the number of a commit; times are milliseconds.
-- A change of this file is a new schema version: see SCHEMA_VERSION in connect.py, and LATER_INDEXES there.

-- seq and next_id lag behind where the newest entry tells them: see read_head in connect.py.
CREATE TABLE meta(
  id INTEGER PRIMARY KEY CHECK (id = 1),
  schema_version INTEGER NOT NULL,
  next_id INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  epoch INTEGER NOT NULL
) STRICT;

-- Kinds and other words that repeat, written once.
CREATE TABLE name(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE conversation(
  id INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL,
  parent INTEGER,
  fork_entry INTEGER,
  owner INTEGER
) STRICT;
CREATE INDEX conversation_owner ON conversation(owner) WHERE owner IS NOT NULL;

-- messages NULL: an empty array; data NULL: null.
CREATE TABLE entry(
  id INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  version INTEGER NOT NULL,
  task INTEGER,
  head INTEGER,
  edits INTEGER,
  messages BLOB,
  data BLOB
) STRICT;
CREATE INDEX entry_conversation ON entry(conversation);
CREATE INDEX entry_head ON entry(conversation) WHERE head IS NOT NULL;

-- ended stands apart from status, so that an ordinary update leaves the live indexes alone.
-- input NULL: it is large and lies in body, so that updates don't write it again. waits: ids between commas.
-- Few indexes: each costs a page in almost every commit, and what is live is few and found in memory first.
CREATE TABLE task(
  id INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  version INTEGER NOT NULL,
  status INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  background INTEGER NOT NULL,
  abort INTEGER NOT NULL,
  unused INTEGER NOT NULL, -- asks_again of the record
  owner INTEGER,
  deadline INTEGER,
  started_at INTEGER,
  ended_at INTEGER,
  waits TEXT,
  input BLOB,
  state BLOB NOT NULL,
  memos BLOB
) STRICT;
CREATE INDEX task_conversation ON task(conversation);
CREATE INDEX task_live ON task(id) WHERE ended = 0;
CREATE INDEX task_owner ON task(owner) WHERE owner IS NOT NULL;
CREATE INDEX task_deadline ON task(deadline) WHERE deadline IS NOT NULL;

-- content NULL: it is large and lies in body.
CREATE TABLE submission(
  id INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL,
  status INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  when_busy INTEGER NOT NULL,
  notify_task INTEGER,
  entry INTEGER,
  answer INTEGER,
  request_id TEXT,
  notify_key TEXT,
  reason TEXT,
  detail TEXT,
  digest BLOB NOT NULL,
  content BLOB
) STRICT;
CREATE UNIQUE INDEX submission_request ON submission(conversation, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX submission_conversation ON submission(conversation);
CREATE INDEX submission_live ON submission(id) WHERE ended = 0;

-- Large inputs of tasks and contents of submissions, by the record's id.
CREATE TABLE body(id INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT;

CREATE TABLE document(
  id INTEGER PRIMARY KEY,
  kind INTEGER NOT NULL,
  scope INTEGER NOT NULL,
  scope_id INTEGER NOT NULL,
  rewindable INTEGER NOT NULL,
  fork INTEGER NOT NULL,
  created INTEGER NOT NULL,
  retired INTEGER,
  key TEXT
) STRICT;
CREATE INDEX document_scope ON document(scope, scope_id);
CREATE INDEX document_alive ON document(scope, scope_id) WHERE retired IS NULL;

CREATE TABLE revision(
  document INTEGER,
  seq INTEGER,
  base INTEGER NOT NULL,
  version INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (document, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE blob(digest TEXT PRIMARY KEY, media_type TEXT NOT NULL, content BLOB NOT NULL) STRICT;
