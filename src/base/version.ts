/** The package's version, for machines to compare; a test keeps it equal to package.json's. */
export const VERSION = '0.2.0';
