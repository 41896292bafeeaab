BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE binding (
	session_id VARCHAR(128) NOT NULL, 
	service VARCHAR(128) NOT NULL, 
	status TEXT NOT NULL, 
	generation BIGINT NOT NULL, 
	told_generation BIGINT NOT NULL, 
	config_hash TEXT NOT NULL, 
	last_error TEXT, 
	since DOUBLE NOT NULL, resume_token TEXT, 
	PRIMARY KEY (session_id, service)
);
INSERT INTO "binding" VALUES('sh_a','counter','unopened',0,0,'',NULL,0.0,NULL);
INSERT INTO "binding" VALUES('sh_b','counter','unopened',0,0,'',NULL,0.0,NULL);
CREATE TABLE journal (
	session_id VARCHAR(128) NOT NULL, 
	seq BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	service TEXT, 
	tool TEXT, 
	status TEXT, 
	run TEXT, 
	role TEXT, 
	operation_id TEXT, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	generation BIGINT NOT NULL, 
	request TEXT, 
	result TEXT, 
	error TEXT, 
	bytes BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (session_id, seq)
);
INSERT INTO "journal" VALUES('sh_a',1,'call',1,'counter','count','ok',NULL,NULL,NULL,101.0,101.5,0,'{"n":1}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',2,'call',1,'counter','count','ok',NULL,NULL,'op-1',102.0,102.5,0,'{"n":2}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',3,'call',1,'counter','count','error',NULL,NULL,NULL,103.0,103.5,0,'{"n":3}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',4,'call',1,'counter','count','ok',NULL,NULL,NULL,104.0,104.5,0,'{"n":4}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',5,'call',1,'counter','count','ok',NULL,NULL,NULL,105.0,105.5,0,'{"n":5}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',6,'call',1,'counter','count','error',NULL,NULL,NULL,106.0,106.5,0,'{"n":6}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',7,'call',1,'counter','count','ok',NULL,NULL,NULL,107.0,107.5,0,'{"n":7}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',8,'call',1,'counter','count','ok',NULL,NULL,NULL,108.0,108.5,0,'{"n":8}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',9,'call',1,'counter','count','error',NULL,NULL,NULL,109.0,109.5,0,'{"n":9}','{"content":["éééééééééé"],"is_error":false}',NULL,260);
INSERT INTO "journal" VALUES('sh_a',10,'call',1,'counter','count','ok',NULL,NULL,NULL,110.0,110.5,0,'{"n":10}','{"content":["éééééééééé"],"is_error":false}',NULL,261);
INSERT INTO "journal" VALUES('sh_a',11,'transition',1,NULL,NULL,'paused',NULL,NULL,NULL,120.0,120.0,0,'{"code":"T08","event":"pause_requested","from":"idle","to":"paused","cause":"requested"}',NULL,NULL,288);
INSERT INTO "journal" VALUES('sh_b',1,'call',1,NULL,'count','started',NULL,NULL,'op-2',5.0,NULL,0,NULL,NULL,NULL,0);
CREATE TABLE node (
	id VARCHAR(128) NOT NULL, 
	proof_key TEXT NOT NULL, 
	address TEXT NOT NULL, 
	state TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	pid BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	lease_ends_at DOUBLE, peer VARCHAR(255) DEFAULT '' NOT NULL, sessions BIGINT DEFAULT 0 NOT NULL, capacity BIGINT DEFAULT 0 NOT NULL, version VARCHAR(64) DEFAULT '' NOT NULL, lease_seconds DOUBLE DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "node" VALUES('n_one','key','stdio, n_one','dead',1.0,7,0,NULL,'',0,0,'',0.0);
CREATE TABLE receipt (
	session_id VARCHAR(128) NOT NULL, 
	operation_id VARCHAR(128) NOT NULL, 
	digest TEXT NOT NULL, 
	status TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	bytes BIGINT NOT NULL, 
	result TEXT, 
	error TEXT, 
	PRIMARY KEY (session_id, operation_id)
);
INSERT INTO "receipt" VALUES('sh_a','op-1','d','ok',2,1,102.0,102.5,20,'{"content":["éééééééééé"]}',NULL);
INSERT INTO "receipt" VALUES('sh_b','op-2','d','started',1,1,5.0,NULL,0,NULL,NULL);
CREATE TABLE session (
	id VARCHAR(128) NOT NULL, 
	owner TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	name TEXT, 
	status TEXT NOT NULL, 
	reason TEXT, 
	created_at DOUBLE NOT NULL, 
	used_at DOUBLE NOT NULL, 
	status_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	due_at DOUBLE, 
	idle_seconds DOUBLE NOT NULL, 
	paused_seconds DOUBLE NOT NULL, 
	lifetime_seconds DOUBLE NOT NULL, 
	lifetime_ends_at DOUBLE, 
	metadata TEXT NOT NULL, 
	parent TEXT, 
	node TEXT, 
	epoch BIGINT NOT NULL, 
	services TEXT NOT NULL, user_id VARCHAR(128), agent_id VARCHAR(128), team_id VARCHAR(128), workflow_id VARCHAR(128), 
	PRIMARY KEY (id)
);
INSERT INTO "session" VALUES('sh_a','local','','work','idle',NULL,1.0,1.0,1.0,NULL,NULL,900.0,86400.0,604800.0,NULL,'{"team":"blue"}',NULL,'n_one',1,'["counter"]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_b','local','',NULL,'idle',NULL,1.0,1.0,1.0,NULL,NULL,900.0,86400.0,604800.0,NULL,'{}',NULL,'n_one',1,'["counter"]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_c','local','','old','closed','requested',1.0,1.0,1.0,9.0,604809.0,900.0,86400.0,604800.0,NULL,'{}',NULL,NULL,1,'[]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_d','4.0:homeben','',NULL,'paused',NULL,1.0,5.0,1.0,NULL,NULL,900.0,86400.0,604800.0,NULL,'{}',NULL,NULL,1,'[]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_e','4.0:homeben','','notes','paused',NULL,1.0,6.0,1.0,NULL,NULL,900.0,86400.0,604800.0,NULL,'{}',NULL,NULL,1,'[]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_f','4.0:homeben','other','notes','paused',NULL,1.0,4.0,1.0,NULL,NULL,900.0,86400.0,604800.0,NULL,'{}',NULL,NULL,1,'[]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_g','4.0:homeben','','notes','closed','requested',1.0,9.0,1.0,9.0,604809.0,900.0,86400.0,604800.0,NULL,'{}',NULL,NULL,1,'[]',NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_h',':ann','','notes','paused',NULL,1.0,4.0,1.0,NULL,NULL,900.0,86400.0,604800.0,NULL,'{}',NULL,NULL,1,'[]',NULL,NULL,NULL,NULL);
CREATE TABLE snapshot (
	session_id VARCHAR(128) NOT NULL, 
	service VARCHAR(128) NOT NULL, 
	seq BIGINT NOT NULL, 
	taken_at DOUBLE NOT NULL, 
	epoch BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (session_id, service, seq)
);
INSERT INTO "snapshot" VALUES('sh_b','counter',1,1.0,1,X'7B7D');
CREATE TABLE state (
	session_id VARCHAR(128) NOT NULL, 
	version BIGINT NOT NULL, 
	value TEXT NOT NULL, 
	json_schema TEXT, 
	PRIMARY KEY (session_id)
);
INSERT INTO "state" VALUES('sh_a',0,'{"n":1152921504606846976,"x":1.0}',NULL);
INSERT INTO "state" VALUES('sh_b',0,'{}',NULL);
INSERT INTO "state" VALUES('sh_c',0,'{}',NULL);
INSERT INTO "state" VALUES('sh_d',0,'{}',NULL);
INSERT INTO "state" VALUES('sh_e',0,'{}',NULL);
INSERT INTO "state" VALUES('sh_f',0,'{}',NULL);
INSERT INTO "state" VALUES('sh_g',0,'{}',NULL);
INSERT INTO "state" VALUES('sh_h',0,'{}',NULL);
CREATE TABLE summary (
	session_id VARCHAR(128) NOT NULL, 
	text TEXT NOT NULL, 
	topics TEXT NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	through_seq BIGINT NOT NULL, 
	PRIMARY KEY (session_id)
);
INSERT INTO "summary" VALUES('sh_a','went well','["tea"]',121.0,11);
CREATE TABLE tally (
	session_id VARCHAR(128) NOT NULL, 
	entries BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	PRIMARY KEY (session_id)
);
INSERT INTO "tally" VALUES('sh_a',11,2889);
INSERT INTO "tally" VALUES('sh_b',1,0);
CREATE INDEX session_due ON session (due_at) WHERE node IS NULL;
CREATE INDEX session_used ON session (owner, used_at);
CREATE INDEX session_node ON session (node) WHERE node IS NOT NULL;
CREATE UNIQUE INDEX session_name ON session (owner, namespace, name) WHERE status NOT IN ('closing', 'closed');
CREATE INDEX session_open ON session (owner) WHERE status NOT IN ('closing', 'closed');
CREATE INDEX journal_look ON journal (session_id, seq, kind, tool, status, run, role);
CREATE INDEX journal_started ON journal (session_id) WHERE status = 'started';
CREATE INDEX session_user_id ON session (owner, user_id, used_at) WHERE user_id IS NOT NULL;
CREATE INDEX session_agent_id ON session (owner, agent_id, used_at) WHERE agent_id IS NOT NULL;
CREATE INDEX session_team_id ON session (owner, team_id, used_at) WHERE team_id IS NOT NULL;
CREATE INDEX session_workflow_id ON session (owner, workflow_id, used_at) WHERE workflow_id IS NOT NULL;
COMMIT;
