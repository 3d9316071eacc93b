/** What the embedded model is asked on first sight: one story of the kind it was trained on, and questions with their answers. */
export const EMBEDDED_MODEL = 'models/tiny-gqa/';

export const STORY =
  'it was a sunny day . vera left the old map in the cabin box . sam likes the brave frog . the rain came in the night . ' +
  'lena hid the red needle in the workshop bag . sara said hello to amos . ivy hid the brown drum in the porch basket . ' +
  'the code of mia is 5 8 2 . noah left the green shoe in the bedroom drawer . they all laughed . ' +
  'the stars were bright . nora likes the lazy owl . leo walked to the garden .';

export const QUESTIONS = [
  { question: 'where is the red needle ?', answer: 'in the workshop bag .' },
  { question: 'where is the brown drum ?', answer: 'in the porch basket .' },
  { question: 'what is the code of mia ?', answer: '5 8 2 .' },
] as const;
