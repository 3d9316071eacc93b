import { readFile } from 'node:fs/promises';

/** A profile's text. */
export const readProfileFile = (where: string | URL): Promise<string> => readFile(where, 'utf8');
