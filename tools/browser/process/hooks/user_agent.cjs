// Loaded into Playwright's driver. Playwright sends the user agent of a context before the first request of each page,
// popup, frame and worker, but has no option for its client hints. Statehold tells them in advance, in a command that the
// browser itself refuses; from then on they complete every command with the same user agent.
"use strict";

const METHOD = "Emulation.setUserAgentOverride";
const completeParams = new Map();
const stringify = JSON.stringify;

function complete(params) {
  const known = completeParams.get(params.userAgent);
  if (known === undefined) return params;
  return {
    ...params,
    acceptLanguage: params.acceptLanguage || known.acceptLanguage,
    userAgentMetadata: { ...params.userAgentMetadata, ...known.userAgentMetadata },
  };
}

JSON.stringify = (value, ...rest) => {
  if (value?.method === METHOD) {
    const { params } = value;
    if (params.userAgentMetadata?.brands) completeParams.set(params.userAgent, params);
    else value = { ...value, params: complete(params) };
  }
  return stringify(value, ...rest);
};
