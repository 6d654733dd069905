-- tables: for all batches; getvariable('spaces') are the blanks within brackets of a regular expression
CREATE TABLE tags (text VARCHAR, count BIGINT);
CREATE TABLE users (text VARCHAR, count BIGINT);
CREATE TABLE lengths (length BIGINT, count BIGINT);
CREATE TABLE blanks (count BIGINT);
CREATE MACRO is_blank(text) AS text IS NULL OR regexp_full_match(text, '[' || getvariable('spaces') || ']*')

-- count: add a batch; blank tags are sought among the distinct ones
CREATE OR REPLACE TEMP TABLE listed AS
    SELECT text, count(*) AS count FROM (SELECT unnest(tags) AS text FROM batch) GROUP BY text;
CREATE OR REPLACE TEMP TABLE blank AS
    SELECT list(text) AS texts, sum(count) AS count FROM listed WHERE is_blank(text);
INSERT INTO tags FROM listed WHERE NOT is_blank(text);
INSERT INTO users SELECT "user", count(*) FROM batch WHERE "user" IS NOT NULL GROUP BY "user";
INSERT INTO lengths SELECT
    CASE WHEN texts IS NULL THEN coalesce(len(tags), 0)
    ELSE len(list_filter(coalesce(tags, []), lambda tag: tag IS NOT NULL AND NOT list_contains(texts, tag))) END
    AS length, count(*) FROM batch, blank GROUP BY length;
INSERT INTO blanks SELECT count FROM blank

-- tags: in the order of a dictionary
SELECT text, sum(count)::BIGINT AS count FROM tags GROUP BY text ORDER BY count DESC, text

-- users: likewise
SELECT text, sum(count)::BIGINT AS count FROM users GROUP BY text ORDER BY count DESC, text

-- lengths: how many images have how many tags
SELECT length, sum(count)::BIGINT AS count FROM lengths GROUP BY ALL

-- blank: the number of blank tags
SELECT coalesce(sum(count), 0)::BIGINT FROM blanks
