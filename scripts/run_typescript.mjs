/** Importing this lets Node import the project's TypeScript, and WGSL as text (`import source from './x.wgsl?raw'`). */
import { register as registerHooks } from 'node:module';
import { register as registerTypeScript } from 'tsx/esm/api';

registerTypeScript();
registerHooks('./wgsl_hooks.mjs', import.meta.url);
