import { readFile } from 'node:fs/promises';

export const readProfileFile = (where: string | URL): Promise<string> => readFile(where, 'utf8');
