// Compares a response with what a test of the suite expects, at three levels:
//   strict   the comparison of the suite itself;
//   adapted  the form may differ: snapshot and console inline or in a file, refs, white space, `./` before names, the words of
//            a link, the spelling of secrets, resources besides the text;
//   relaxed  words may differ: addresses, quoted texts, numbers and names in brackets must be there, an error an error, and
//            code has the same actions; WORDS has ours for words of the peer that the suite finds by a pattern.
// A test fails if it fails at the relaxed level. An annotation tells the levels at which it failed, and whether it compared anything.
const path = require('path');
const { expect, test } = require('playwright/test');
const { tools } = require('playwright-core/lib/coreBundle');

const FORM = [
  [/ \[ref=\w+\]/g, ''], [/ \[active\]/g, ''], [/ \[cursor=pointer\]/g, ''], [/^- \[[^\]]+\]\(/gm, '- [link]('],
  [/(^|["'(\s])\.\/(?=\w)/g, '$1'], [/[({[] *\n\s*/g, text => text.trim()], [/,?\s*\n\s*(?=[)}\]])/g, ''],
  [/\{ /g, '{'], [/ \}/g, '}'], [/\s+/g, ' '],
];
const ACTIONS = /\.(?!getBy|locator|first|nth|filter)\w+(?=\()/g;
const TOKENS = /https?:\/\/[^\s)"'`]+|"[^"\n]+"|'[^'\n]+'|`[^`\n]+`|\[[\w= ]+\]|\b\d+\b/g;

// Our words for what the suite knows by the words of the peer or of a browser.
const WORDS = [
  [/Not allowed to reach [^ ]+: /g, 'net::ERR_BLOCKED_BY_CLIENT: '],
  [/'([^']+)' is no file of this session and none in a folder for uploads: ([^ ]+)\./g, 'File access denied: $1 is outside allowed roots. Allowed roots: $2'],
  [/there is no program ([^ ]+);/g, 'Failed to launch $1;'],
  [/a browser with \d+ sessions is gone:/g, 'browser disconnected:'],
];

function wordsOfPeer(text) {
  return WORDS.reduce((rest, [pattern, theirs]) => rest.replace(pattern, theirs), text);
}

// Names of secrets have hyphens in the suite. A caller writes them as %NAME% here.
const SECRET = /^[A-Z]+(-[A-Z]+)+$/;

function secretsOfPeer(text) {
  const hyphens = name => name.replaceAll('_', '-');
  return text.replace(/%([A-Z]+(?:_[A-Z]+)+)%/g, (_, name) => `<secret>${hyphens(name)}</secret>`)
      .replace(/(?<=process\.env\['|os\.environ\[")[A-Z_]+/g, hyphens);
}

function form(text) {
  return FORM.reduce((rest, [pattern, instead]) => rest.replace(pattern, instead), text ?? '').trim();
}

function isAdapted(received, expected, cwd) {
  if (typeof expected === 'boolean' || expected === undefined || typeof received === 'boolean')
    return (received || undefined) === (expected || undefined);
  const sample = expected.sample ?? expected;
  if (!(sample instanceof RegExp || typeof sample === 'string'))
    return passes(() => expect(received).toEqual(expected));
  const plain = (received ?? '').replaceAll(cwd + '/', '');
  if (sample instanceof RegExp) {
    // A name that nobody chose has no time here: page.png, page-2.png.
    const pattern = new RegExp(sample.source.replace(/-(?:\\d\{4\}.*?Z|\[\^:\]\+)/, '(?:-\\d+)?'), sample.flags);
    return [received, plain, form(plain)].some(text => pattern.test(text) || sample.test(text)) !== !!expected.inverse;
  }
  if (expected.sample === undefined)
    return form(plain) === form(sample);
  return (plain.includes(sample) || form(plain).includes(form(sample))) !== !!expected.inverse;
}

// undefined: the expectation names nothing but words.
function isRelaxed(key, parsed, expected) {
  const sample = expected?.sample ?? expected;
  if (sample instanceof RegExp && key === 'error')
    return !!parsed.isError && sample.test(wordsOfPeer(parsed.text)) !== !!expected.inverse;
  if (typeof sample !== 'string' || expected.inverse || ['snapshot', 'inlineSnapshot'].includes(key))
    return false;
  if (key === 'code')
    return sample.match(ACTIONS)?.join() === parsed.code?.match(ACTIONS)?.join();
  if (key === 'error' && !parsed.isError)
    return false;
  const tokens = sample.match(TOKENS) ?? [];
  if (!tokens.length && key !== 'error' && !(key === 'modalState' && parsed.modalState))
    return key === 'modalState' ? false : undefined;
  return tokens.filter(token => !/browser_\w+/.test(token)).every(token => parsed.text.includes(token.replace(/^(["'`])(.*)\1$/, '$2').replace(/^\.\//, '')));
}

function passes(check) {
  try {
    check();
    return true;
  } catch {
    return false;
  }
}

// A file of a session is linked as a resource, with the place of its copy: the suite expects that place, from the test's folder.
function adapt(response) {
  const parsed = { ...tools.parseResponse(response, test.info().outputPath()) };
  const text = (parsed.text ?? '').replace(/(["(])session:\/\/[^")]*([")])(?: \(\d+ bytes\))? \(copied to ([^)\n]+)\)/g,
      (_, begin, end, file) => begin + path.relative(test.info().outputPath(), file) + end)
      .replace(/^- \[Body, [^\]]*\]\(([^)]*)\)$/m, '$1');
  const content = [{ type: 'text', text: secretsOfPeer(text) }, ...(response.content ?? []).slice(1)];
  const adapted = { text: '', ...tools.parseResponse({ ...response, content }, test.info().outputPath()) };
  adapted.snapshot ??= adapted.inlineSnapshot;
  adapted.inlineSnapshot ??= adapted.snapshot;
  return { raw: parsed, adapted };
}

const levels = new Map();

function note(where, outcome) {
  const info = test.info();
  const found = levels.get(info) ?? levels.set(info, new Map()).get(info);
  found.set(where, outcome);
  const all = [...found.values()];
  const description = JSON.stringify({
    strict: all.every(one => one.strict), adapted: all.every(one => one.adapted), compared: all.some(one => one.compared) || all.every(one => one.compared === undefined),
  });
  info.annotations = info.annotations.filter(one => one.type !== 'levels');
  info.annotations.push({ type: 'levels', description });
}

exports.toHaveResponse = function(response, object) {
  const { raw, adapted: parsed } = adapt(response);
  const part = Object.fromEntries(Object.entries(raw).filter(([key]) => key in object));
  const strict = passes(() => expect(part).toEqual(expect.objectContaining(object))) && (!parsed.isError || !!object.isError);
  // An action that a dialog holds up is an error here.
  let adapted = !parsed.isError || !!object.isError || 'error' in object || ('modalState' in object && !!parsed.modalState);
  let compared = false;
  const missing = adapted ? [] : ['no error'];
  for (const [key, expected] of Object.entries(object)) {
    if (isAdapted(parsed[key], expected, test.info().outputPath())) {
      compared = true;
      continue;
    }
    adapted = false;
    const relaxed = isRelaxed(key, parsed, expected);
    compared ||= relaxed === true;
    if (relaxed === false)
      missing.push(key);
  }
  const isNot = this.isNot;
  if (isNot)
    note(JSON.stringify(object) + 'not', { strict: !strict, adapted: !adapted, compared: true });
  else
    note(JSON.stringify(object), { strict, adapted, compared });
  const pass = isNot ? adapted : !missing.length;
  return { pass, message: () => `Not as expected: ${missing.join(', ')}\n${form(JSON.stringify(object, null, 1))}\n\nResponse:\n${parsed.text}` };
};

// Answers have resources besides their text, and a secret is typed as %NAME%.
exports.adaptCalls = function(client) {
  const callTool = client.callTool.bind(client);
  client.callTool = async (request, ...rest) => {
    const text = JSON.stringify(request);
    const ours = JSON.stringify(request, (_, value) => typeof value === 'string' && SECRET.test(value) ? `%${value.replaceAll('-', '_')}%` : value);
    if (ours !== text)
      note('secrets', { strict: false, adapted: true });
    const response = await callTool(JSON.parse(ours), ...rest);
    const content = response.content?.filter(part => part.type !== 'resource_link');
    if (content?.length === response.content?.length)
      return response;
    note('links', { strict: false, adapted: true });
    return { ...response, content };
  };
};

// A test that never reads this path has not started our server.
exports.program = function(file) {
  return { *[Symbol.iterator]() {
    note('program', { strict: true, adapted: true });
    yield file;
  } };
};

exports.inWordsOfPeer = function(text) {
  const theirs = wordsOfPeer(text);
  if (theirs !== text)
    note('words', { strict: false, adapted: false, compared: true });
  return theirs;
};

// The messages of the console are in the answer, equal ones once. The peer links a file with them.
exports.consoleEntries = function(response) {
  note('console', { strict: false, adapted: true });
  return response.events?.replace(/^(.*) \((\d+) times\)$/gm, (_, line, count) => Array(Number(count)).fill(line).join('\n'));
};

// A comparison with the lines that the peer writes for its tests would compare nothing, or wait in vain.
exports.formatLog = function() {
  throw new Error('The server writes no lines for the tests of the peer');
};

exports.parseResponse = function(response) {
  const { raw, adapted } = adapt(response);
  const result = {};
  for (const [key, value] of Object.entries(adapted)) {
    const get = () => {
      if (JSON.stringify(value) !== JSON.stringify(raw[key]))
        note(`parsed ${key}`, { strict: false, adapted: true, compared: true });
      return value;
    };
    Object.defineProperty(result, key, { enumerable: true, get });
  }
  return result;
};
