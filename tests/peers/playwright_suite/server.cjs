// Starts Statehold with the flags, the variables and the configuration file of @playwright/mcp, translated into ours.
// The suite starts it as `node server.cjs FLAGS`; STATEHOLD is the program, and stdin, stdout and stderr are its own.
const { spawn } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

// The place of each flag in the configuration of the peer. A flag without one changes nothing here.
const PLACES = {
  'allowed-origins': 'network.allowedOrigins', 'blocked-origins': 'network.blockedOrigins', 'caps': 'capabilities',
  'allow-unrestricted-file-access': 'allowUnrestrictedFileAccess', 'browser': 'browser.name', 'codegen': 'codegen',
  'cdp-endpoint': 'browser.cdpEndpoint', 'cdp-header': 'browser.cdpHeaders', 'console-level': 'console.level',
  'device': 'device', 'mobile': 'mobile', 'executable-path': 'browser.launchOptions.executablePath',
  'endpoint': 'browser.remoteEndpoint', 'grant-permissions': 'browser.contextOptions.permissions',
  'ignore-https-errors': 'browser.contextOptions.ignoreHTTPSErrors', 'init-page': 'browser.initPage',
  'init-script': 'browser.initScript', 'image-responses': 'imageResponses', 'output-dir': 'outputDir',
  'output-max-size': 'outputMaxSize', 'port': 'server.port', 'host': 'server.host', 'secrets': 'secretsFile',
  'allowed-hosts': 'server.allowedHosts', 'proxy-server': 'browser.launchOptions.proxy.server',
  'save-session': 'saveSession', 'snapshot-boxes': 'snapshot.boxes', 'snapshot-mode': 'snapshot.mode',
  'storage-state': 'browser.contextOptions.storageState', 'test-id-attribute': 'testIdAttribute',
  'timeout-action': 'timeouts.action', 'timeout-navigation': 'timeouts.navigation',
  'user-agent': 'browser.contextOptions.userAgent', 'user-data-dir': 'browser.userDataDir', 'viewport-size': 'browser.contextOptions.viewport',
};
const SEPARATORS = { 'allowed-origins': ';', 'blocked-origins': ';', 'caps': ',', 'grant-permissions': ',', 'allowed-hosts': ',' };
const REPEATED = ['init-page', 'init-script', 'cdp-header'];
const SWITCHES = ['allow-unrestricted-file-access', 'mobile', 'ignore-https-errors', 'save-session', 'snapshot-boxes', 'vision',
  'headless', 'isolated', 'no-sandbox', 'sandbox', 'shared-browser-context', 'extension', 'block-service-workers'];
// Settings without a counterpart: a test that passes without their effect would check nothing.
const MISSING = ['browser.userDataDir', 'browser.contextOptions.recordVideo', 'browser.launchOptions.ignoreDefaultArgs',
  'browser.launchOptions.chromiumSandbox', 'browser.remoteHeaders'];
const LANGUAGES = { python: 'python', javascript: 'typescript' };

function put(config, place, value) {
  const keys = place.split('.');
  const last = keys.pop();
  let table = config;
  for (const key of keys)
    table = table[key] ??= {};
  table[last] = value;
}

function readFlags(words) {
  const flags = {};
  for (let i = 0; i < words.length; i++) {
    const [name, ...rest] = words[i].replace(/^--/, '').split('=');
    const value = rest.length ? rest.join('=') : SWITCHES.includes(name) ? true : words[++i];
    if (REPEATED.includes(name))
      (flags[name] ??= []).push(value);
    else
      flags[name] = SEPARATORS[name] ? value.split(SEPARATORS[name]) : value;
  }
  return flags;
}

function readHeader(line) {
  const [name, ...value] = line.split(':');
  return [name, value.join(':').trim()];
}

function readFile(file) {
  const text = fs.readFileSync(file, 'utf-8').replace(/^\uFEFF/, '');
  if (text.trim().startsWith('{'))
    return JSON.parse(text);
  const config = {};
  let section = '';
  for (const line of text.split('\n').map(line => line.trim())) {
    const [key, ...rest] = line.split('=').map(word => word.trim());
    const value = rest.join('=');
    if (line.startsWith('['))
      section = line.slice(1, -1) + '.';
    else if (rest.length)
      put(config, section + key, /^(true|false|\d+)$/.test(value) ? JSON.parse(value) : value);
  }
  return config;
}

function peerConfig() {
  const flags = {};
  for (const name of Object.keys(PLACES)) {
    const value = process.env['PLAYWRIGHT_MCP_' + name.toUpperCase().replaceAll('-', '_')];
    if (value !== undefined)
      flags[name] = SEPARATORS[name] ? value.split(SEPARATORS[name]) : value;
  }
  Object.assign(flags, readFlags(process.argv.slice(2)));
  const config = flags.config ? readFile(flags.config) : {};
  if (flags.vision)
    flags.caps = [...(flags.caps ?? []), 'vision'];
  for (const [name, value] of Object.entries(flags)) {
    if (PLACES[name])
      put(config, PLACES[name], value);
  }
  // A path is relative to the file it stands in, one of a flag to the current folder.
  config.folder = flags.config && !flags['init-page'] && !flags['init-script'] ? path.dirname(path.resolve(flags.config)) : process.cwd();
  return config;
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'statehold-suite-'));

function write(name, text) {
  const file = path.join(folder, name);
  fs.writeFileSync(file, text, { mode: 0o600 });
  return file;
}

// A file for pages is Python here: the calls and errors of its function are rewritten. A file without them fails.
function pythonPage(file, index) {
  const source = fs.readFileSync(file, 'utf-8');
  const statements = source.match(/(?<=^ {2,6})(await page\..*|throw new Error\(.*)\)(?=;$)/gm) ?? ['raise ValueError'];
  const lines = statements.map(statement => '    ' + statement.replace('throw new Error', 'raise ValueError')
      .replaceAll('.context()', '.context').replace(/(\w+): (?=-?\d)/g, '"$1": ')
      .replace(/(?<=\.)\w+(?=\()/g, name => name.replace(/[A-Z]/g, letter => '_' + letter.toLowerCase())));
  return write(`page${index}.py`, ['async def default(page):', ...lines, ''].join('\n'));
}

function settings(peer) {
  const browser = peer.browser ?? {};
  const launch = browser.launchOptions ?? {};
  const context = browser.contextOptions ?? {};
  const absolute = file => path.resolve(peer.folder, file);
  const seconds = value => value === undefined ? undefined : Number(value) / 1000;
  const size = context.viewport;
  const secrets = peer.secrets
    ? Object.entries(peer.secrets).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`).join('')
    : peer.secretsFile && fs.readFileSync(peer.secretsFile, 'utf-8');
  const state = context.storageState;
  const named = browser.name ?? browser.browserName;
  const headers = browser.cdpHeaders;
  return {
    executable: launch.executablePath,
    channel: ['firefox', 'webkit'].includes(named) ? named : undefined,
    args: launch.args,
    proxy: (launch.proxy ?? context.proxy)?.server.replace(/^(?!\w+:\/\/)/, 'http://'),
    cdp_endpoint: browser.cdpEndpoint,
    cdp_headers: Array.isArray(headers) ? Object.fromEntries(headers.map(readHeader)) : headers,
    attach: browser.cdpEndpoint ? 'tabs' : undefined,
    ws_endpoint: browser.remoteEndpoint?.endpoint ?? browser.remoteEndpoint,
    viewport: typeof size === 'string' ? size.split('x').map(Number) : size ? [size.width, size.height] : undefined,
    user_agent: context.userAgent,
    locale: context.locale,
    timezone: context.timezoneId,
    device: peer.device,
    mobile: peer.mobile ?? undefined,
    device_scale_factor: context.deviceScaleFactor,
    permissions: context.permissions,
    ignore_https_errors: context.ignoreHTTPSErrors,
    init_script: browser.initScript?.map(absolute),
    init_page: browser.initPage?.map(absolute).map(pythonPage),
    storage_state: typeof state === 'object' ? write('state.json', JSON.stringify(state)) : state && path.resolve(state),
    secrets: secrets ? write('secrets.env', secrets.replace(/^[\w-]+(?==)/gm, name => name.replaceAll('-', '_'))) : undefined,
    test_id_attribute: peer.testIdAttribute,
    allow: peer.network?.allowedOrigins,
    block: peer.network?.blockedOrigins,
    caps: ['unsafe', ...(peer.capabilities ?? [])].map(name => name === 'tracing' ? 'devtools' : name).filter(name => !name.startsWith('core')),
    snapshot: peer.snapshot?.mode ?? 'full',
    snapshot_tokens: 100_000,
    snapshot_boxes: peer.snapshot?.boxes,
    codegen: peer.codegen ?? LANGUAGES[process.env.PW_LANG_NAME] ?? 'typescript',
    console_level: peer.console?.level ?? 'info',
    action_seconds: seconds(peer.timeouts?.action),
    navigation_seconds: seconds(peer.timeouts?.navigation),
    output_dir: path.resolve(peer.outputDir ?? '.'),
    output_max_size: peer.outputMaxSize === undefined ? undefined : Number(peer.outputMaxSize),
    save_session: peer.saveSession,
    image_responses: peer.imageResponses,
    outlive: false,
    // The peer takes files from its own folder only if the client has no roots.
    uploads: peer.allowUnrestrictedFileAccess ? ['/'] : process.env.SUITE_HAS_ROOTS ? [] : [process.cwd()],
  };
}

function toml(value) {
  if (value === null || typeof value !== 'object')
    return JSON.stringify(value);
  if (Array.isArray(value))
    return `[${value.map(toml).join(', ')}]`;
  return `{ ${Object.entries(value).map(([key, item]) => `${JSON.stringify(key)} = ${toml(item)}`).join(', ')} }`;
}

const peer = peerConfig();
// Tests over HTTP are given a profile that most of them do not need.
const missing = MISSING.filter(place => place.split('.').reduce((table, key) => table?.[key], peer) !== undefined)
    .filter(place => place !== 'browser.userDataDir' || peer.server?.port === undefined);
if (missing.length) {
  process.stderr.write(`no counterpart: ${missing.join(', ')}\n`);
  process.exit(1);
}
const lines = Object.entries(settings(peer)).filter(([, value]) => value !== undefined && value !== null);
const hosts = peer.server?.allowedHosts ? ['[server]', `allowed_hosts = ${toml(peer.server.allowedHosts)}`] : [];
const text = [...hosts, '[services.browser]', ...lines.map(([key, value]) => `${key} = ${toml(value)}`), ''].join('\n');
const args = ['--config', write('statehold.toml', text), '--data', path.join(folder, 'data')];
if (peer.server?.port !== undefined) {
  args.unshift('serve', '--auto-session', '--port', String(peer.server.port), '--host', peer.server.host ?? 'localhost');
} else {
  args.push('--session', 'suite');
}
const child = spawn(process.env.STATEHOLD, args, { stdio: ['inherit', 'inherit', 'pipe'] });
child.stderr.on('data', data => process.stderr.write(String(data).replaceAll('Statehold listens on', 'Listening on')));
for (const signal of ['SIGTERM', 'SIGINT'])
  process.on(signal, () => child.kill(signal));
child.on('exit', code => {
  fs.rmSync(folder, { recursive: true, force: true });
  process.exit(code ?? 1);
});
