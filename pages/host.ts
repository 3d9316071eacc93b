// The page of `--host chrome`, beside the others while they run from source. The package has it alone.
import '../src/app/host.js';
