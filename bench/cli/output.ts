import { access, constants, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { compareDocuments, type OlderDocument, readOlderDocument } from '../compare.js';
import type { SuiteDocument } from '../document.js';
import { reportHtml } from '../report/report.js';
import { comparisonTable, environmentLines } from '../table.js';
import { SplitkvError } from '../../src/base/errors.js';
import { parseJson } from '../../src/base/json.js';

/** An older document, read before anything is measured: a wrong file shall not cost a run. */
export async function readOlder(path: string | undefined, suite: string): Promise<OlderDocument | undefined> {
  if (path === undefined) return undefined;
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new SplitkvError('io', `--compare ${path}: can't be read: ${(error as Error).message}`, { cause: error });
  }
  return readOlderDocument(parseJson(text, path), `--compare ${path}`, suite);
}

export const withComparison = (document: SuiteDocument, older: OlderDocument | undefined): SuiteDocument =>
  older ? { ...document, comparison: compareDocuments(older, document) } : document;

/** The document for people. */
export function documentText(document: SuiteDocument, table: string): string {
  const { comparison, environment } = document;
  return `${environmentLines(environment)}\n${table}${comparison ? `\n${comparisonTable(comparison)}` : ''}`;
}

/** Makes the folder before anything is measured: a wrong one shall not cost a run. */
export async function openDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { recursive: true });
    await access(directory, constants.W_OK);
  } catch (error) {
    throw unwritable(directory, error);
  }
}

const unwritable = (directory: string, error: unknown): SplitkvError =>
  new SplitkvError('io', `--out ${directory}: can't be written: ${(error as Error).message}`, { cause: error });

/** Writes SUITE-HOST.json, .txt and .html into a folder that is there; returns the report's path. */
export async function writeDocument(directory: string, document: SuiteDocument, table: string): Promise<string> {
  const path = join(directory, `${document.suite}-${document.environment.host}`);
  try {
    await writeFile(`${path}.json`, documentJson(document));
    await writeFile(`${path}.txt`, documentText(document, table));
    await writeFile(`${path}.html`, reportHtml(document, table));
  } catch (error) {
    throw unwritable(directory, error);
  }
  return `${path}.html`;
}

/** Writes SUITE.json and its own page, index.html, into a folder that is there; returns the page's path. */
export async function writePage(directory: string, document: SuiteDocument, page: string): Promise<string> {
  const path = join(directory, 'index.html');
  try {
    await writeFile(join(directory, `${document.suite}.json`), documentJson(document));
    await writeFile(path, page);
  } catch (error) {
    throw unwritable(directory, error);
  }
  return path;
}

export const documentJson = (document: SuiteDocument): string => `${JSON.stringify(document, null, 2)}\n`;
