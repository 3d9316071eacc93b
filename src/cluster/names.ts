import { usageError } from '../base/errors.js';

/** The package's version, for machines to compare; a test keeps it equal to package.json's. */
export const VERSION = '0.1.0';

/** First part of every subject of splitkv's. */
const PREFIX = 'splitkv';
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;

/** Whether a text may name something of a cluster: part of a subject, of a bucket's name, of a line of a log. */
export const isName = (name: unknown): boolean => typeof name === 'string' && NAME.test(name);

/** @param what the name is of, for the error @throws SplitkvError `usage` */
export function checkName(name: string, what: string): string {
  if (isName(name)) return name;
  const shown = JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}...` : name);
  throw usageError(`${what} ${shown}: expected 1 to 63 letters, digits, - and _, of which the first is no sign`);
}

/**
 * A subject of a cluster: everything that splitkv sends lies below `splitkv.CLUSTER`, so that an account can be limited to it.
 * @param parts names, and at the end of a subscription's `*` or `>` @throws SplitkvError `usage` for another part
 */
export function subjectOf(cluster: string, ...parts: readonly string[]): string {
  const checked = parts.map((part, at) =>
    part === '*' || (part === '>' && at === parts.length - 1) ? part : checkName(part, 'part of a subject'),
  );
  return [PREFIX, checkName(cluster, 'cluster'), ...checked].join('.');
}
