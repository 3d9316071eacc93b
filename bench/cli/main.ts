/** The command line as a checkout has it: with the benches, which the package says are run here. */
import { addCommand, run, runOn } from '../../src/cli/main.js';

addCommand('bench', () => import('./command.js'));

export { run, runOn };
