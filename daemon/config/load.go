package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
	"kith.dev/core/base/places"
)

const maxFile = 1 << 20

// load makes the configuration from defaults, the file (none when path is empty) and what flags said.
func load(path string, flags func(*Config) error, hostname func() (string, error)) (Config, error) {
	c := Default()
	if path != "" {
		if err := readFile(&c, path); err != nil {
			return Config{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := flags(&c); err != nil {
		return Config{}, err
	}
	if err := c.complete(places.Here(), hostname); err != nil {
		return Config{}, fmt.Errorf("name: cannot take the host's: %w (set `name`)", err)
	}
	return c, c.check()
}

func readFile(c *Config, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err) // its text without the path
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(b) > maxFile {
		return fmt.Errorf("larger than %d bytes", maxFile)
	}
	return parse(c, b)
}

// parse applies a file's content. YAML's own surprises are errors too: a key given twice, a second document.
func parse(c *Config, b []byte) error {
	if documents(b) > 1 {
		return errors.New("holds more than one YAML document")
	}
	asJSON, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var content any
	if err := d.Decode(&content); err != nil {
		return err
	}
	return section(c, "", content)
}

// section applies the keys under prefix ("" or "discovery.").
func section(c *Config, prefix string, content any) error {
	if content == nil { // empty, or all of it is commented out
		return nil
	}
	values, ok := content.(map[string]any)
	if !ok {
		where := strings.TrimSuffix(prefix, ".")
		return &api.Error{
			Code: api.CodeInvalid, Message: fmt.Sprintf("%.50q stands where keys are expected", fmt.Sprint(content)),
			Reason: "lines must be of the form `key: value`", Field: where,
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		full := prefix + name
		if i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == full }); i >= 0 {
			if err := keys[i].applyYAML(c, values[name]); err != nil {
				return err
			}
		} else if slices.ContainsFunc(keys, func(k Key) bool { return strings.HasPrefix(k.Name, full+".") }) {
			if err := section(c, full+".", values[name]); err != nil {
				return err
			}
		} else {
			return unknown(full)
		}
	}
	return nil
}

// applyYAML takes a value of the kind the key has and no other: `share: 50` is not 50%, and "yes" is not true.
func (k Key) applyYAML(c *Config, value any) error {
	invalid := api.Invalid(k.Name, fmt.Sprint(value), k.Allowed)
	if list, ok := value.([]any); ok && k.List {
		values := make([]string, len(list))
		for i, v := range list {
			if values[i], ok = v.(string); !ok {
				return api.Invalid(k.Name, fmt.Sprint(v), k.Allowed)
			}
		}
		return k.apply(c, values)
	}
	var text string
	switch v := value.(type) {
	case string:
		text = v
		if k.Bool || k.Number || k.List {
			return invalid
		}
	case json.Number:
		text = v.String()
		if !k.Number && (!k.Zero || text != "0") {
			return invalid
		}
	case bool:
		text = fmt.Sprint(v)
		if !k.Bool {
			return invalid
		}
	case nil:
		return api.Invalid(k.Name, "", k.Allowed)
	default:
		return invalid
	}
	return k.apply(c, []string{text})
}

func unknown(name string) error {
	e := &api.Error{Code: api.CodeInvalid, Message: "there is no key " + name, Field: name, Do: "kith.yaml(5) has them all"}
	best := 3 // more than two mistakes: another word
	for _, k := range keys {
		if d := distance(strings.ToLower(name), strings.ToLower(k.Name)); d < best {
			best, e.Reason = d, "did you mean "+k.Name+"?"
		}
	}
	return e
}

// distance counts the characters to add, drop or change (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// documents counts YAML documents with something in them, which the library would silently skip after the first.
func documents(b []byte) int {
	n, filled := 0, false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "---" || strings.HasPrefix(line, "--- "):
			filled = false
		case line != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") && !filled:
			filled = true
			n++
		}
	}
	return n
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
