import { testAdapters } from '../gpu/testing/adapters.js';
import { conformance } from './testing/conformance.js';
import { workerLinks } from './testing/worker_links.js';

const { name } = (await testAdapters()).at(-1)!;
conformance('3 workers', workerLinks([name, name, name], false));
conformance('2 workers with shared memory', workerLinks([name, name], true));
