/** The worker of forms as one script but for XGrammar, packed; the library's build puts it here. */
export const text: string = '';
