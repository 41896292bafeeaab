// Loaded into Playwright's driver and into hosts. Playwright writes the endpoint of a bound browser, which is secret, to a file
// in the cache folder of the user, for tools that look for browsers. No such tool needs our browsers: the file is not written. The
// folder is moved to that of temporary files, so that a cache that cannot be written stops no browser.
"use strict";

const { promises } = require("fs");
const { tmpdir } = require("os");
const { dirname, join } = require("path");

const FOLDER = join(tmpdir(), "registry");
process.env.PWTEST_SERVER_REGISTRY = FOLDER;

const writeFile = promises.writeFile;
promises.writeFile = async (file, ...rest) => {
  if (typeof file !== "string" || dirname(file) !== FOLDER) await writeFile(file, ...rest);
};
