/** What is searched: put your own texts here, or fetch them. */
export const DOCUMENTS: readonly { readonly title: string; readonly text: string }[] = [
  {
    title: 'Opening hours',
    text: 'The library opens at nine on weekdays and at ten on Saturdays. It closes at six, on Thursdays at eight. On Sundays it is closed.',
  },
  {
    title: 'Borrowing',
    text: 'Books are lent for four weeks, films for one. A loan is renewed twice at most, on the website or by telephone, unless somebody else waits for the book.',
  },
  {
    title: 'Fees',
    text: 'A card costs twenty francs a year. It is free for those under eighteen. A book that comes back late costs ten cents a day.',
  },
];
