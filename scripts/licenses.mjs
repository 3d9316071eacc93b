/** The licences of what is bundled: what Vite collects of the packages' files, and what those leave out. */
import { readFileSync, writeFileSync } from 'node:fs';
import spdx from 'spdx-license-list/full.js';

/**
 * Packages that publish no licence file: whose they are, by their repository, and what their WASM was linked of (xgrammar's
 * web/build.sh and CMakeLists.txt: picojson's and dlpack's headers, and Emscripten's libraries; cpptrace and googletest aren't built).
 */
const WITHOUT_FILES = {
  '@mlc-ai/web-xgrammar': {
    copyright: 'XGrammar\nCopyright (c) 2024 by XGrammar Contributors',
    contains: [
      {
        name: 'picojson',
        license: 'BSD-2-Clause',
        copyright: 'Copyright 2009-2010 Cybozu Labs, Inc.\nCopyright 2011-2014 Kazuho Oku',
      },
      { name: 'dlpack', license: 'Apache-2.0', copyright: 'Copyright (c) 2017 by Contributors' },
      {
        name: 'Emscripten',
        license: 'MIT',
        copyright:
          'Copyright (c) 2010-2014 Emscripten authors, see AUTHORS file of https://github.com/emscripten-core/emscripten',
      },
      { name: 'musl', license: 'MIT', copyright: 'Copyright (c) 2005-2020 Rich Felker, et al.' },
      {
        name: 'libc++, libc++abi and compiler-rt of LLVM',
        license: 'Apache-2.0',
        copyright:
          'Copyright (c) LLVM Project contributors (Apache-2.0 WITH LLVM-exception: compiled into other works they need no notice)',
      },
    ],
  },
};

const HEADING = /^## (\S+) - \S+ \(([^)]*)\)$/;

/**
 * The document with a text in every section: that of the package's own file, else the declared licence's with its copyright.
 * @throws Error for a package without a text that nobody has looked at
 */
export function completeLicenses(document) {
  const lines = document.split('\n');
  const starts = lines.flatMap((line, at) => (HEADING.test(line) ? [at] : []));
  const parts = [
    lines
      .slice(0, starts[0] ?? lines.length)
      .join('\n')
      .trimEnd(),
  ];
  for (const [index, start] of starts.entries()) {
    const [, name, license] = HEADING.exec(lines[start]);
    const own = lines
      .slice(start + 1, starts[index + 1])
      .join('\n')
      .trim();
    parts.push(lines[start], own === '' ? noticeOf(name, license) : own);
  }
  return `${parts.join('\n\n')}\n`;
}

function noticeOf(name, license) {
  const known = WITHOUT_FILES[name];
  if (!known) {
    throw new Error(
      `${name} is bundled and has no licence file: say whose it is and what it contains in scripts/licenses.mjs`,
    );
  }
  const contains = known.contains.map(
    (part) => `### ${part.name}, in ${name} (${part.license})\n\n${textOf(part.license, part.copyright, part.name)}`,
  );
  return [textOf(license, known.copyright, name), ...contains].join('\n\n');
}

/** The copyright, then the licence's text without its own place for one. */
function textOf(license, copyright, name) {
  const text = spdx[license]?.licenseText;
  if (!text) throw new Error(`${name}: no text is known of the licence ${JSON.stringify(license)}`);
  const terms = text.replace(/\n*^ *Copyright \(c\) <.*$\n*/m, '\n\n').trim();
  return `${copyright}\n\n${terms}`;
}

export const completeLicenseFile = (file) => writeFileSync(file, completeLicenses(readFileSync(file, 'utf8')));
