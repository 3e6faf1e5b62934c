CREATE TABLE circuits (
  circuit_id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  town TEXT NOT NULL,
  country TEXT NOT NULL,
  length_m INTEGER NOT NULL, -- of one lap, in metres
  turns INTEGER NOT NULL,
  altitude_m INTEGER NOT NULL
);
CREATE TABLE teams (
  team_id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  country TEXT NOT NULL,
  engine TEXT NOT NULL, -- maker of the engine
  founded INTEGER NOT NULL
);
CREATE TABLE drivers (
  driver_id INTEGER PRIMARY KEY,
  first_name TEXT NOT NULL,
  last_name TEXT NOT NULL,
  code TEXT NOT NULL, -- three letters on the timing screen
  country TEXT NOT NULL,
  born_on TEXT NOT NULL -- YYYY-MM-DD
);
CREATE TABLE seats (
  season INTEGER NOT NULL,
  driver_id INTEGER NOT NULL REFERENCES drivers (driver_id),
  team_id INTEGER NOT NULL REFERENCES teams (team_id),
  role TEXT NOT NULL, -- R or T
  PRIMARY KEY (season, driver_id)
);
CREATE TABLE races (
  race_id INTEGER PRIMARY KEY,
  season INTEGER NOT NULL,
  round INTEGER NOT NULL,
  circuit_id INTEGER NOT NULL REFERENCES circuits (circuit_id),
  name TEXT NOT NULL,
  held_on TEXT NOT NULL, -- YYYY-MM-DD
  laps INTEGER NOT NULL,
  weather TEXT NOT NULL -- D, W or M
);
CREATE TABLE qualifying (
  race_id INTEGER NOT NULL REFERENCES races (race_id),
  driver_id INTEGER NOT NULL REFERENCES drivers (driver_id),
  position INTEGER NOT NULL,
  q1_ms INTEGER NOT NULL, -- best lap of the first part, in milliseconds
  q2_ms INTEGER, -- null for those out after the first part
  q3_ms INTEGER, -- null for those out after the second part
  PRIMARY KEY (race_id, driver_id)
);
CREATE TABLE results (
  race_id INTEGER NOT NULL REFERENCES races (race_id),
  driver_id INTEGER NOT NULL REFERENCES drivers (driver_id),
  team_id INTEGER NOT NULL REFERENCES teams (team_id),
  grid INTEGER NOT NULL, -- starting place; 0 is a start from the pit lane
  position INTEGER, -- null when not classified
  points INTEGER NOT NULL,
  laps INTEGER NOT NULL, -- completed
  time_ms INTEGER, -- from start to flag; null when not classified
  fastest_lap_ms INTEGER,
  status INTEGER NOT NULL, -- 0 to 5
  PRIMARY KEY (race_id, driver_id)
);
CREATE TABLE pit_stops (
  race_id INTEGER NOT NULL REFERENCES races (race_id),
  driver_id INTEGER NOT NULL REFERENCES drivers (driver_id),
  stop INTEGER NOT NULL, -- 1 for the first stop of the race
  lap INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  tyre TEXT NOT NULL, -- fitted: S, M, H, I or W
  PRIMARY KEY (race_id, driver_id, stop)
);
CREATE TABLE penalties (
  penalty_id INTEGER PRIMARY KEY,
  race_id INTEGER NOT NULL REFERENCES races (race_id),
  driver_id INTEGER NOT NULL REFERENCES drivers (driver_id),
  seconds INTEGER NOT NULL, -- added to the race time
  reason TEXT NOT NULL -- SPEED, TRACK, START or CRASH
);
