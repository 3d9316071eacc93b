/** The worker of forms as one script, packed; the library's build puts it here. */
export const text: string = '';
