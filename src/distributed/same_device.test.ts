import { testAdapters } from '../gpu/testing/adapters.js';
import { conformance } from './testing/conformance.js';
import { groupLinks } from './testing/group_links.js';

const { name } = (await testAdapters()).at(-1)!;
conformance('2 ranks on one device', groupLinks([name, name]));
conformance('4 ranks on one device', groupLinks([name, name, name, name]));
