-- survey: what the rules need to know of each image: hashes of its name, its user and its first tags
SELECT row, md5_number_lower(nullif(image, '')) AS low, md5_number_upper(nullif(image, '')) AS high,
    CASE WHEN "user" IS NOT NULL THEN hash("user") END AS "user", len(tags) AS length,
    list_sort(tags) = tags AS alphabetical,
    list_sort(list_distinct(list_transform(tags[:getvariable('first')], lambda tag: hash(tag)))) AS firsts
FROM batch

-- count: how often each tag is listed
SELECT tag, count(*) AS count FROM (SELECT unnest(tags) AS tag FROM batch) GROUP BY tag

-- merge: the surveys of all parts of a corpus
CREATE TABLE counts AS SELECT kind, text, sum(count)::BIGINT AS count FROM all_counts GROUP BY kind, text;
CREATE TABLE names AS
    SELECT low, high, min(row) AS first_row FROM images WHERE low IS NOT NULL GROUP BY low, high HAVING count(*) > 1

-- judge: the number of the first rule that drops an image, but for similar ones; and the sets of tags that may be shared
CREATE OR REPLACE TEMP VIEW judged AS SELECT row, "user", firsts, CASE
    WHEN low IS NULL THEN 1
    WHEN row > first_row THEN 2
    WHEN length < getvariable('least_tags') THEN 3
    WHEN alphabetical AND getvariable('alphabetical') THEN 4
    ELSE 0 END AS verdict
FROM images LEFT JOIN names USING (low, high);
CREATE OR REPLACE TEMP VIEW sets AS
    SELECT row, "user", hash(list_select(firsts, places)) AS tags FROM judged, choices
    WHERE verdict = 0 AND "user" IS NOT NULL AND places[-1] <= len(firsts)

-- share: the sets that several images of a user have, with the first of them
CREATE OR REPLACE TEMP TABLE shared AS
    SELECT "user", tags, min(row) AS first_row FROM sets GROUP BY "user", tags HAVING count(*) > 1

-- like_seen: images similar to an earlier one, and the first of these
SELECT row, min(first_row) FROM sets JOIN shared USING ("user", tags) WHERE first_row < row GROUP BY row

-- in_order: the shared sets of each user's images, one image after the other
SELECT "user", row, tags FROM sets JOIN shared USING ("user", tags) ORDER BY "user", row
