import { testAdapters } from '../gpu/testing/adapters.js';
import { isTurn } from '../gpu/testing/draw.js';
import { conformance } from './testing/conformance.js';
import { groupLinks } from './testing/group_links.js';

const adapters = await testAdapters();
const name = adapters.at(-1)!.name;
const other = adapters[0]!.name;
conformance('two devices', groupLinks([`${name}#a`, `${name}#b`]));
// Where there is only one kind of adapter, these are two of its devices.
if (isTurn(3, 'two kinds of adapter')) conformance('two kinds of adapter', groupLinks([`${other}#c`, `${name}#d`]));
conformance('4 ranks on two devices', groupLinks([`${name}#e`, `${name}#f`, `${name}#e`, `${name}#f`]));
