/** What runs in the Web Worker of a rank. */
import type { Port } from '../../distributed/index.js';
import { RankServer } from './serve_rank.js';

const rank = new RankServer(globalThis as unknown as Pick<Port, 'postMessage' | 'onmessage'>);
// An error that is thrown tells the page by itself, a rejected promise doesn't.
globalThis.addEventListener('unhandledrejection', ({ reason }) => rank.fail(reason));
