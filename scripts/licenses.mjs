/** The licences of what is bundled, as Vite collects them of the packages' files. */
import { readFileSync } from 'node:fs';

const HEADING = /^## (\S+) - \S+ \([^)]*\)$/;

/** @throws Error for a package without a text: nobody has looked at whose it is, and what it contains */
export function checkLicenses(document) {
  const lines = document.split('\n');
  const starts = lines.flatMap((line, at) => (HEADING.test(line) ? [at] : []));
  for (const [index, start] of starts.entries()) {
    const text = lines
      .slice(start + 1, starts[index + 1])
      .join('\n')
      .trim();
    if (text === '') throw new Error(`${HEADING.exec(lines[start])[1]} is bundled and has no licence file`);
  }
}

export const checkLicenseFile = (file) => checkLicenses(readFileSync(file, 'utf8'));
