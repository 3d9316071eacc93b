// Extensions load scripts from their own folder only: the package's files are copied there.
import { cpSync, rmSync } from 'node:fs';

const from = 'node_modules/splitkv/dist';
const to = 'extension/splitkv';
rmSync(to, { recursive: true, force: true });
cpSync(from, to, { recursive: true, filter: (path) => path === from || path.endsWith('.js') });
console.log(`${to} is there: load the folder "extension" at chrome://extensions (developer mode, "Load unpacked")`);
