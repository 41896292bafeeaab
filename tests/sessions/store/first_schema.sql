BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0110');
CREATE TABLE audit (
	seq BIGINT NOT NULL, 
	document TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "audit" VALUES(1,'{"at":1795933567.14263,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"count","session_id":"shop","call":"33db5507948aaa5c","decision":"allow","transport":"stdio"}','9658aa85d7f983ee6320c380af603d19d332adea7ac798dfb34529d4d22db70d');
INSERT INTO "audit" VALUES(2,'{"at":1795933567.27266,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"count","session_id":"shop","call":"33db5507948aaa5c","decision":"allow","outcome":"ok","duration_ms":130.0,"transport":"stdio"}','ed1a9765beb85e872ef16e914c24fee029b39902b4f3270d1d3492492c2609f9');
INSERT INTO "audit" VALUES(3,'{"at":1795933567.329663,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"write_note","session_id":"shop","call":"34d065d1f4c12e23","decision":"allow","transport":"stdio"}','7268342fff08f34a1190403d993082dd9056940db61216a1047970b098bb90a8');
INSERT INTO "audit" VALUES(4,'{"at":1795933567.331207,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"write_note","session_id":"shop","call":"34d065d1f4c12e23","decision":"allow","outcome":"ok","duration_ms":1.5,"transport":"stdio"}','ede1bef0a1d66c5c8990b10fad85613a4a7460087db84059335c2a2362eda0b4');
INSERT INTO "audit" VALUES(5,'{"at":1795933567.366808,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"state_update","session_id":"shop","call":"25ab0eb5965e5022","decision":"allow","transport":"stdio"}','260372dd22be1a90ae11c3e5d8155758d9febd305558836a2daf2a7db0b47207');
INSERT INTO "audit" VALUES(6,'{"at":1795933567.371679,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"state_update","session_id":"shop","call":"25ab0eb5965e5022","decision":"allow","outcome":"ok","duration_ms":4.9,"transport":"stdio"}','615a0a7bd59f063708d95e26f721a85e8531721761f7828a47a2b3ddc00683c8');
INSERT INTO "audit" VALUES(7,'{"at":1795933567.416988,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"count","session_id":"other","call":"ddab23e338298328","decision":"allow","transport":"stdio"}','95e7d5598c897a15a4afc90133b51b112b9a2b1061641fe4a2dab504fb913e8f');
INSERT INTO "audit" VALUES(8,'{"at":1795933567.500533,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","operation":"tools/call","tool":"count","session_id":"other","call":"ddab23e338298328","decision":"allow","outcome":"ok","duration_ms":83.5,"transport":"stdio"}','2a482e470c1f0211cdb7e559a74d6e3b1e065ec58675133ae81ccf5c77e40e44');
INSERT INTO "audit" VALUES(9,'{"at":1795933569.453293,"event":"request","node":"command","subject":"local","actor_name":"root by a command","operation":"principals limit principal ada of https://id.example: sessions","call":"93fb0428c435f383","decision":"allow","transport":"command"}','3bf0da11406cdbf30655a0d2cda735cacb995435b43506ab6f3ad5c0818e489d');
INSERT INTO "audit" VALUES(10,'{"at":1795933569.462045,"event":"result","node":"command","subject":"local","actor_name":"root by a command","operation":"principals limit principal ada of https://id.example: sessions","call":"93fb0428c435f383","decision":"allow","outcome":"ok","duration_ms":8.8,"transport":"command"}','0784cda3640dc82b2790ebee53695eb37c5ce786bcfbfebeb05c14768f9e9522');
INSERT INTO "audit" VALUES(11,'{"at":1795933572.062021,"event":"request","node":"command","subject":"local","actor_name":"root by a command","operation":"principals revoke https://id.example/ben","call":"810cc8daa9c87e51","decision":"allow","transport":"command"}','fd6110d3bd24450f03675518abfb7fe516ccd81420f7b1c293d7bad3dcd5d6b1');
INSERT INTO "audit" VALUES(12,'{"at":1795933572.068283,"event":"result","node":"command","subject":"local","actor_name":"root by a command","operation":"principals revoke https://id.example/ben","call":"810cc8daa9c87e51","decision":"allow","outcome":"ok","duration_ms":6.3,"transport":"command"}','801f94cb6c5dd4af4eabcdec7bf3c7950baa306e16ede82a73f261e54948b635');
INSERT INTO "audit" VALUES(13,'{"at":1795933574.084053,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","actor_name":"root by a command","operation":"session_share","session_id":"sh_ornke2vl66aounjmcdieyjtzp3","call":"cde0a3df64ae5ba2","decision":"allow","transport":"command"}','061da429431cd7d8dee1e5190a02871013240bf4f6561ff2f00a9db925f999c7');
INSERT INTO "audit" VALUES(14,'{"at":1795933574.090396,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","actor_name":"root by a command","operation":"session_share","session_id":"sh_ornke2vl66aounjmcdieyjtzp3","call":"cde0a3df64ae5ba2","decision":"allow","outcome":"ok","duration_ms":6.3,"transport":"command"}','2591eb4f892b391ed20e08a7e65ac31691f8a55ded1812493993344642be2f2a');
INSERT INTO "audit" VALUES(15,'{"at":1795933576.140275,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","actor_name":"root by a command","operation":"session_pause","session_id":"sh_ornke2vl66aounjmcdieyjtzp3","call":"3b552dc3193b1680","decision":"allow","transport":"command"}','8cd7fef53487123dba1447a6e30cf9c43bfa60dd7d696d097c79babff97e1fc0');
INSERT INTO "audit" VALUES(16,'{"at":1795933576.159302,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","actor_name":"root by a command","operation":"session_pause","session_id":"sh_ornke2vl66aounjmcdieyjtzp3","call":"3b552dc3193b1680","decision":"allow","outcome":"ok","duration_ms":19.0,"transport":"command"}','a9fecf256e2f0bf350a624c28267ee64c8c4c75a38b6ca338ec60aff2a12ac9b');
INSERT INTO "audit" VALUES(17,'{"at":1795933578.171235,"event":"request","node":"n_9c2ad79d5d359d4d","subject":"local","actor_name":"root by a command","operation":"session_close","session_id":"sh_bduha2rsyjdasoy635clyo223q","call":"f84efc2a24d3698b","decision":"allow","transport":"command"}','1a139666a41b337f7294690aedfb11725cec3f99a7590f444a77b9b12c41e9f5');
INSERT INTO "audit" VALUES(18,'{"at":1795933578.188417,"event":"result","node":"n_9c2ad79d5d359d4d","subject":"local","actor_name":"root by a command","operation":"session_close","session_id":"sh_bduha2rsyjdasoy635clyo223q","call":"f84efc2a24d3698b","decision":"allow","outcome":"ok","duration_ms":17.2,"transport":"command"}','092468b8cbe91e51307972e11dd08c96039fcd86dc067b296ecd652efc0f2100');
CREATE TABLE audit_head (
	id BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit_head" VALUES(1,18,'092468b8cbe91e51307972e11dd08c96039fcd86dc067b296ecd652efc0f2100');
CREATE TABLE binding (
	session_id VARCHAR(128) NOT NULL, 
	service VARCHAR(128) NOT NULL, 
	status TEXT NOT NULL, 
	generation BIGINT NOT NULL, 
	told_generation BIGINT NOT NULL, 
	config_hash TEXT NOT NULL, 
	last_error TEXT, 
	since DOUBLE NOT NULL, 
	resume_token TEXT, 
	PRIMARY KEY (session_id, service)
);
INSERT INTO "binding" VALUES('sh_ornke2vl66aounjmcdieyjtzp3','notebook','paused',1,0,'dee4f53b8cdbc73e8ed4a08f659621fe',NULL,1.79593356726352095607e+09,'{"peer":{"version":"2025-11-25","modern":false,"info":{"name":"notebook","version":"1.0.0"},"capabilities":{"tools":{}},"instructions":null},"session_id":null}');
INSERT INTO "binding" VALUES('sh_bduha2rsyjdasoy635clyo223q','notebook','paused',1,0,'dee4f53b8cdbc73e8ed4a08f659621fe',NULL,1.7959335674971506595e+09,'{"peer":{"version":"2025-11-25","modern":false,"info":{"name":"notebook","version":"1.0.0"},"capabilities":{"tools":{}},"instructions":null},"session_id":null}');
CREATE TABLE credential (
	digest VARCHAR(128) NOT NULL, 
	id VARCHAR(128) NOT NULL, 
	kind VARCHAR(128) NOT NULL, 
	name TEXT NOT NULL, 
	principal TEXT, 
	rights TEXT NOT NULL, 
	session_id TEXT, 
	link TEXT, 
	created_by TEXT, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	used_at DOUBLE, 
	claims TEXT, 
	PRIMARY KEY (digest)
);
INSERT INTO "credential" VALUES('db4117fe818ff97d95b7cf14fa6502ee8de903d0da0c6474de0305bdf75e87f8','c7f2e311a61ad786','code','root at the console',NULL,'control',NULL,NULL,NULL,1.79593357868620133403e+09,1.79593369868620133392e+09,NULL,'{"role":"user","groups":[]}');
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
	facts TEXT, 
	PRIMARY KEY (session_id, seq)
);
INSERT INTO "journal" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',1,'transition',1,NULL,NULL,'idle',NULL,NULL,NULL,1.79593356715264868732e+09,1.79593356715264868732e+09,0,'{"code":"T02","event":"opened","from":"creating","to":"idle","cause":null}',NULL,NULL,274,NULL);
INSERT INTO "journal" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',2,'call',1,'notebook','count','ok',NULL,NULL,'op-1',1.79593356716574096675e+09,1.79593356726435041427e+09,1,'{}','{"content":["{\"count\": 1, \"pid\": 9706}"],"is_error":false}',NULL,299,'{"values":{"/count":1,"/pid":9706}}');
INSERT INTO "journal" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',3,'call',1,'notebook','write_note','ok',NULL,NULL,NULL,1.7959335673301177025e+09,1.79593356733077645298e+09,1,'{"text":"buy tea"}','{"content":["{\"notes\": [\"buy tea\"], \"pid\": 9706}"],"is_error":false}',NULL,337,'{"values":{"/notes/0":"buy tea","/pid":9706}}');
INSERT INTO "journal" VALUES('sh_bduha2rsyjdasoy635clyo223q',1,'transition',1,NULL,NULL,'idle',NULL,NULL,NULL,1.79593356742001652721e+09,1.79593356742001652721e+09,0,'{"code":"T02","event":"opened","from":"creating","to":"idle","cause":null}',NULL,NULL,274,NULL);
INSERT INTO "journal" VALUES('sh_bduha2rsyjdasoy635clyo223q',2,'call',1,'notebook','count','ok',NULL,NULL,NULL,1.79593356742694425579e+09,1.79593356749776887895e+09,1,'{}','{"content":["{\"count\": 1, \"pid\": 9710}"],"is_error":false}',NULL,299,'{"values":{"/count":1,"/pid":9710}}');
INSERT INTO "journal" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',4,'transition',1,NULL,NULL,'paused',NULL,NULL,NULL,1.79593357614095735551e+09,1.79593357614095735551e+09,0,'{"code":"T08","event":"pause_requested","from":"idle","to":"paused","cause":"cli"}',NULL,NULL,282,NULL);
INSERT INTO "journal" VALUES('sh_bduha2rsyjdasoy635clyo223q',3,'transition',1,NULL,NULL,'closing',NULL,NULL,NULL,1.79593357817203450208e+09,1.79593357817203450208e+09,0,'{"code":"T12","event":"close_requested","from":"idle","to":"closing","cause":"cli"}',NULL,NULL,283,NULL);
INSERT INTO "journal" VALUES('sh_bduha2rsyjdasoy635clyo223q',4,'transition',1,NULL,NULL,'closed',NULL,NULL,NULL,1.79593357818440818793e+09,1.79593357818440818793e+09,0,'{"code":"T18","event":"released","from":"closing","to":"closed","cause":"cli"}',NULL,NULL,278,NULL);
CREATE TABLE node (
	id VARCHAR(128) NOT NULL, 
	proof_key TEXT NOT NULL, 
	address TEXT NOT NULL, 
	state TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	pid BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	lease_ends_at DOUBLE, 
	peer VARCHAR(255) DEFAULT '' NOT NULL, 
	sessions BIGINT DEFAULT 0 NOT NULL, 
	capacity BIGINT DEFAULT 0 NOT NULL, 
	version VARCHAR(64) DEFAULT '' NOT NULL, 
	lease_seconds DOUBLE DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "node" VALUES('n_9c2ad79d5d359d4d','703ba942-e7b8-4175-90f9-bdceb1a2c677:65024:2285906','shared, pid 9685','dead',1.79593356638745331767e+09,9685,0,NULL,'',0,100,'0.1.0',0.0);
CREATE TABLE oauth (
	digest VARCHAR(128) NOT NULL, 
	secret VARCHAR(128) NOT NULL, 
	owner TEXT NOT NULL, 
	document TEXT NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE principal (
	digest VARCHAR(128) NOT NULL, 
	kind TEXT NOT NULL, 
	issuer TEXT NOT NULL, 
	name TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	member_of TEXT NOT NULL, 
	role TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "principal" VALUES('bdc68736f1a87432d9a2dee406cf5fe599e6246eb0c4c962208f0cdee7395f61','principal','https://id.example','ada','{"sessions":2}','[]','user',1,1.79593356945336937906e+09);
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
INSERT INTO "receipt" VALUES('sh_ornke2vl66aounjmcdieyjtzp3','op-1','b9a8f6ccf55c686ea4dc3441decfdbb4efa047358b3c773914cf452415ec1274','ok',2,1,1.79593356716574096675e+09,1.79593356726435041427e+09,127,'{"content":[{"type":"text","text":"{\"count\": 1, \"pid\": 9706}"}],"structuredContent":{"count":1,"pid":9706},"isError":false}',NULL);
CREATE TABLE revocation (
	digest VARCHAR(128) NOT NULL, 
	owner TEXT NOT NULL, 
	revoked_at DOUBLE NOT NULL, 
	revoked_by TEXT NOT NULL, 
	reason TEXT, 
	until DOUBLE, 
	keeps_sessions BIGINT NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "revocation" VALUES('1e841d9eb8518391cf2a1a19935eaa80012d723b07c5406b88c98bd32f1686ae','18.0:https://id.exampleben',1.79593357206170344355e+09,'root',NULL,NULL,0);
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
	services TEXT NOT NULL, 
	user_id VARCHAR(128), 
	agent_id VARCHAR(128), 
	team_id VARCHAR(128), 
	workflow_id VARCHAR(128), 
	control TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "session" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',':local','','shop','paused',NULL,1.79593356714411473275e+09,1.79593356736817216876e+09,1.79593357614095735551e+09,NULL,NULL,900.0,0.0,0.0,NULL,'{}',NULL,NULL,1,'["notebook"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "session" VALUES('sh_bduha2rsyjdasoy635clyo223q',':local','','other','closed','cli',1.79593356741784882543e+09,1.79593356750021243095e+09,1.79593357818468928339e+09,1.79593357818468928339e+09,1.79653837818468928334e+09,900.0,0.0,0.0,NULL,'{}',NULL,NULL,1,'["notebook"]',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE session_share (
	session_id VARCHAR(128) NOT NULL, 
	grantee VARCHAR(128) NOT NULL, 
	kind TEXT NOT NULL, 
	issuer TEXT NOT NULL, 
	name TEXT NOT NULL, 
	rights TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	PRIMARY KEY (session_id, grantee)
);
INSERT INTO "session_share" VALUES('sh_ornke2vl66aounjmcdieyjtzp3','bdc68736f1a87432d9a2dee406cf5fe599e6246eb0c4c962208f0cdee7395f61','principal','https://id.example','ada','view',':local',1.79593357408585906033e+09,1.79596237408585906025e+09);
CREATE TABLE snapshot (
	session_id VARCHAR(128) NOT NULL, 
	service VARCHAR(128) NOT NULL, 
	seq BIGINT NOT NULL, 
	taken_at DOUBLE NOT NULL, 
	epoch BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (session_id, service, seq)
);
INSERT INTO "snapshot" VALUES('sh_bduha2rsyjdasoy635clyo223q','notebook',1795933567499,1.79593356749804973601e+09,1,X'7B2264617461223A7B226E6F746573223A5B5D7D2C22626C6F6273223A7B7D7D');
INSERT INTO "snapshot" VALUES('sh_ornke2vl66aounjmcdieyjtzp3','notebook',1795933572269,1.79593357226842236518e+09,1,X'7B2264617461223A7B226E6F746573223A5B2262757920746561225D7D2C22626C6F6273223A7B7D7D');
INSERT INTO "snapshot" VALUES('sh_ornke2vl66aounjmcdieyjtzp3','notebook',1795933576142,1.79593357614133119579e+09,1,X'7B2264617461223A7B226E6F746573223A5B2262757920746561225D7D2C22626C6F6273223A7B7D7D');
CREATE TABLE state (
	session_id VARCHAR(128) NOT NULL, 
	version BIGINT NOT NULL, 
	value TEXT NOT NULL, 
	json_schema TEXT, 
	PRIMARY KEY (session_id)
);
INSERT INTO "state" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',1,'{"cart":["tea"]}',NULL);
INSERT INTO "state" VALUES('sh_bduha2rsyjdasoy635clyo223q',0,'{}',NULL);
CREATE TABLE summary (
	session_id VARCHAR(128) NOT NULL, 
	text TEXT NOT NULL, 
	topics TEXT NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	through_seq BIGINT NOT NULL, 
	PRIMARY KEY (session_id)
);
CREATE TABLE tally (
	session_id VARCHAR(128) NOT NULL, 
	entries BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	PRIMARY KEY (session_id)
);
INSERT INTO "tally" VALUES('sh_ornke2vl66aounjmcdieyjtzp3',4,1192);
INSERT INTO "tally" VALUES('sh_bduha2rsyjdasoy635clyo223q',4,1134);
CREATE INDEX session_open ON session (owner) WHERE status NOT IN ('closing', 'closed');
CREATE INDEX session_node ON session (node) WHERE node IS NOT NULL;
CREATE INDEX session_due ON session (due_at) WHERE node IS NULL;
CREATE INDEX session_agent_id ON session (owner, agent_id, used_at) WHERE agent_id IS NOT NULL;
CREATE INDEX session_team_id ON session (owner, team_id, used_at) WHERE team_id IS NOT NULL;
CREATE INDEX session_workflow_id ON session (owner, workflow_id, used_at) WHERE workflow_id IS NOT NULL;
CREATE UNIQUE INDEX session_name ON session (owner, namespace, name) WHERE status NOT IN ('closing', 'closed');
CREATE INDEX session_used ON session (owner, used_at);
CREATE INDEX session_user_id ON session (owner, user_id, used_at) WHERE user_id IS NOT NULL;
CREATE INDEX journal_look ON journal (session_id, seq, kind, tool, status, run, role);
CREATE INDEX journal_started ON journal (session_id) WHERE status = 'started';
CREATE INDEX session_share_grantee ON session_share (grantee);
COMMIT;
