CREATE TABLE districts (
  district_id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  region TEXT NOT NULL,
  population INTEGER NOT NULL,
  avg_salary INTEGER NOT NULL, -- gross per month, in crowns
  jobless_2022 REAL NOT NULL, -- per cent of the labour force
  jobless_2023 REAL NOT NULL -- per cent of the labour force
);
CREATE TABLE branches (
  branch_id INTEGER PRIMARY KEY,
  district_id INTEGER NOT NULL REFERENCES districts (district_id),
  name TEXT NOT NULL,
  opened_on TEXT NOT NULL -- YYYY-MM-DD
);
CREATE TABLE clients (
  client_id INTEGER PRIMARY KEY,
  first_name TEXT NOT NULL,
  last_name TEXT NOT NULL,
  sex INTEGER NOT NULL, -- ISO 5218 code
  born_on TEXT NOT NULL, -- YYYY-MM-DD
  district_id INTEGER NOT NULL REFERENCES districts (district_id) -- where the client lives
);
CREATE TABLE accounts (
  account_id INTEGER PRIMARY KEY,
  branch_id INTEGER NOT NULL REFERENCES branches (branch_id),
  kind TEXT NOT NULL, -- CUR, SAV or BUS
  statement TEXT NOT NULL, -- how often a statement is sent: W, M or T
  opened_on TEXT NOT NULL -- YYYY-MM-DD
);
CREATE TABLE holders (
  account_id INTEGER NOT NULL REFERENCES accounts (account_id),
  client_id INTEGER NOT NULL REFERENCES clients (client_id),
  role TEXT NOT NULL, -- O or A
  PRIMARY KEY (account_id, client_id)
);
CREATE TABLE cards (
  card_id INTEGER PRIMARY KEY,
  account_id INTEGER NOT NULL REFERENCES accounts (account_id),
  client_id INTEGER NOT NULL REFERENCES clients (client_id),
  tier INTEGER NOT NULL, -- 1, 2 or 3
  issued_on TEXT NOT NULL, -- YYYY-MM-DD
  blocked_on TEXT -- YYYY-MM-DD; null while the card is in use
);
CREATE TABLE loans (
  loan_id INTEGER PRIMARY KEY,
  account_id INTEGER NOT NULL REFERENCES accounts (account_id),
  granted_on TEXT NOT NULL, -- YYYY-MM-DD
  amount INTEGER NOT NULL, -- in crowns
  months INTEGER NOT NULL,
  payment INTEGER NOT NULL, -- per month, in crowns
  state TEXT NOT NULL -- PD, DF, RN or LT
);
CREATE TABLE standing_orders (
  order_id INTEGER PRIMARY KEY,
  account_id INTEGER NOT NULL REFERENCES accounts (account_id),
  to_bank TEXT NOT NULL, -- two-letter code of the receiving bank
  amount_cents INTEGER NOT NULL,
  purpose TEXT NOT NULL -- RENT, INSUR, LOAN or SAVE
);
CREATE TABLE transactions (
  transaction_id INTEGER PRIMARY KEY,
  account_id INTEGER NOT NULL REFERENCES accounts (account_id),
  booked_on TEXT NOT NULL, -- YYYY-MM-DD
  direction TEXT NOT NULL, -- C or D
  channel TEXT NOT NULL, -- ATM, CSH, XFR, POS or INT
  amount_cents INTEGER NOT NULL, -- always positive
  balance_cents INTEGER NOT NULL, -- of the account, after this transaction
  purpose TEXT -- SALARY, PENSION, RENT, GROCERY, TRAVEL ... or null
);
CREATE INDEX transactions_of_account ON transactions (account_id, booked_on);
