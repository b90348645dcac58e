// Package kubeconfig puts a context for this laptop's Kubernetes into a person's own kubeconfig, beside those that are there. kith and
// kith-tray call it; it links no Kubernetes code.
//
// What is not Kith's stays as it is: other contexts, clusters and users, fields that nobody here knows, comments, the order. (kubectl,
// when it writes the file, loses comments and unknown fields.) Only the layout of lines may change. It must never write over an entry
// that is not Kith's, nor touch a file that it does not understand.
package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// Name is how the context is called, and its cluster and user, unless somebody says otherwise.
	Name = "kith"
	// mark is the extension by which Kith knows its entries again; kubectl and others keep extensions.
	mark = "kith.dev"
	// maxFile bounds a file that is read, in bytes.
	maxFile = 4 << 20
)

// config is one kubeconfig as it is written, with comments.
type config struct {
	document yaml.Node  // with the comments around it
	root     *yaml.Node // a mapping
	remarks  []byte     // what stands in a file that has nothing but comments
}

// parse reads a kubeconfig. An empty file gives an empty config.
func parse(text []byte) (*config, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is no text in UTF-8")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	c := new(config)
	var second yaml.Node
	err := decoder.Decode(&c.document)
	if errors.Is(err, io.EOF) {
		c.root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		c.document = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{c.root}}
		c.remarks = bytes.TrimSpace(text)
		return c, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one YAML document")
	}
	if c.root = c.document.Content[0]; null(c.root) {
		*c.root = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", HeadComment: c.root.HeadComment, FootComment: c.root.FootComment}
	}
	if c.root.Kind != yaml.MappingNode {
		return nil, errors.New("it is not of the form `key: value`")
	}
	for i := 0; i < len(c.root.Content); i += 2 {
		for j := 0; j < i; j += 2 {
			if c.root.Content[i].Value == c.root.Content[j].Value {
				return nil, fmt.Errorf("it has %.40q twice", c.root.Content[i].Value)
			}
		}
	}
	if kind := scalar(c.root, "kind"); kind != "" && kind != "Config" {
		return nil, fmt.Errorf("it is of kind %.40q, and not Config", kind)
	}
	for _, list := range []string{"clusters", "users", "contexts"} {
		if err := c.check(list); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// check refuses a list with an entry that has no name.
func (c *config) check(list string) error {
	node := value(c.root, list)
	if null(node) {
		return nil
	}
	if node.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s is not a list", list)
	}
	seen := map[string]bool{}
	for _, entry := range node.Content {
		name := scalar(entry, "name")
		if entry.Kind != yaml.MappingNode || name == "" {
			return fmt.Errorf("%s has an entry without a name", list)
		}
		if seen[name] {
			return fmt.Errorf("%s has %.60q twice", list, name)
		}
		seen[name] = true
	}
	return nil
}

// kinds maps each list of a kubeconfig to the key under which its entries hold their content.
var kinds = map[string]string{"clusters": "cluster", "users": "user", "contexts": "context"}

// entry returns the content of the named entry of a list; nil when there is none.
func (c *config) entry(list, name string) *yaml.Node {
	node := value(c.root, list)
	if null(node) {
		return nil
	}
	for _, entry := range node.Content {
		if scalar(entry, "name") == name {
			if inner := value(entry, kinds[list]); !null(inner) {
				return inner
			}
			return &yaml.Node{Kind: yaml.MappingNode}
		}
	}
	return nil
}

// put sets the content of the named entry of a list. A new entry is appended.
func (c *config) put(list, name string, inner *yaml.Node) {
	node := value(c.root, list)
	if null(node) {
		node = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		set(c.root, list, node)
	}
	if len(node.Content) == 0 {
		node.Style = 0 // not []
	}
	for _, entry := range node.Content {
		if scalar(entry, "name") == name {
			set(entry, kinds[list], inner)
			return
		}
	}
	entry := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	set(entry, kinds[list], inner)
	set(entry, "name", text(name))
	node.Content = append(node.Content, entry)
}

// foreign names the first entry of the name that is not Kith's; "" if there is none. server is where Kith's own leads: entries from before
// they were marked, or that somebody copied, are known by it.
func (c *config) foreign(name, server string) string {
	context, cluster, user := c.entry("contexts", name), c.entry("clusters", name), c.entry("users", name)
	leads := func(cluster *yaml.Node) bool { return cluster != nil && scalar(cluster, "server") == server }
	ours := context != nil && (marked(context) || leads(c.entry("clusters", scalar(context, "cluster"))))
	switch {
	case context != nil && !ours:
		return "context"
	case cluster != nil && !marked(cluster) && !leads(cluster):
		return "cluster"
	case user != nil && !marked(user) && !(ours && scalar(context, "user") == name):
		return "user"
	}
	return ""
}

// has reports whether there is an entry of the name in any list.
func (c *config) has(name string) bool {
	return c.entry("contexts", name) != nil || c.entry("clusters", name) != nil || c.entry("users", name) != nil
}

func (c *config) current() string { return scalar(c.root, "current-context") }

// access is the content of a kubeconfig from kithd: one cluster and one user.
type access struct {
	cluster, user *yaml.Node
	server        string
}

// accessOf returns the cluster and the user of a kubeconfig's current context.
func accessOf(kubeconfig []byte) (access, error) {
	c, err := parse(kubeconfig)
	if err != nil {
		return access{}, err
	}
	context := c.entry("contexts", c.current())
	if context == nil {
		return access{}, errors.New("it has no current context")
	}
	a := access{cluster: c.entry("clusters", scalar(context, "cluster")), user: c.entry("users", scalar(context, "user"))}
	if a.cluster == nil || a.user == nil || scalar(a.cluster, "server") == "" {
		return access{}, errors.New("its current context leads nowhere")
	}
	a.server = scalar(a.cluster, "server")
	return a, nil
}

// merge adds the access to c under a name that is free or marked as Kith's. What the user added to Kith's entries stays, for example the
// namespace of the context.
func (c *config) merge(a access, name string, use bool) {
	if value(c.root, "apiVersion") == nil {
		set(c.root, "apiVersion", text("v1"))
	}
	if value(c.root, "kind") == nil {
		set(c.root, "kind", text("Config"))
	}
	cluster := c.entry("clusters", name)
	if cluster == nil {
		cluster = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	for _, old := range []string{"certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name"} {
		if value(a.cluster, old) == nil {
			remove(cluster, old)
		}
	}
	for i := 0; i < len(a.cluster.Content); i += 2 {
		set(cluster, a.cluster.Content[i].Value, a.cluster.Content[i+1])
	}
	context := c.entry("contexts", name)
	if context == nil {
		context = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	set(context, "cluster", text(name))
	set(context, "user", text(name))
	for _, e := range []struct {
		list  string
		inner *yaml.Node
	}{{"clusters", cluster}, {"users", a.user}, {"contexts", context}} {
		setMark(e.inner)
		c.put(e.list, name, e.inner)
	}
	if use {
		set(c.root, "current-context", text(name))
	}
}

// bytes encodes the config as kubectl does: indented by two spaces, lists not indented.
func (c *config) bytes() ([]byte, error) {
	var b bytes.Buffer
	if len(c.remarks) > 0 {
		b.Write(append(c.remarks, '\n'))
	}
	spellNulls(c.root, false)
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	err := encoder.Encode(&c.document)
	return b.Bytes(), errors.Join(err, encoder.Close())
}

// keeps returns an error that names what writing after in place of before would lose: everything but the entries of the given name must mean
// the same in both. The file is a person's way into all their clusters, so what the library wrote is compared, not trusted.
func keeps(before, after []byte, name string) error {
	was, err := rest(before, name)
	if err != nil {
		return err
	}
	is, err := rest(after, name)
	if err != nil {
		return err
	}
	for key, value := range was {
		if !reflect.DeepEqual(is[key], value) {
			return fmt.Errorf("%.40q would be another", key)
		}
	}
	return nil
}

// rest returns the decoded kubeconfig without the entries of the given name.
func rest(text []byte, name string) (map[string]any, error) {
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, key := range []string{"apiVersion", "kind", "current-context"} {
		delete(all, key)
	}
	for list := range kinds {
		entries, _ := all[list].([]any)
		entries = slices.DeleteFunc(entries, func(e any) bool {
			entry, _ := e.(map[string]any)
			return fmt.Sprint(entry["name"]) == name
		})
		if len(entries) > 0 {
			all[list] = entries
		} else {
			delete(all, list) // whether it is empty or missing means the same
		}
	}
	return all, nil
}

// spellNulls writes an explicit null for a value left empty in a flow mapping ({a: }), which the library would write as an empty string.
func spellNulls(n *yaml.Node, braces bool) {
	braces = braces || n.Style&yaml.FlowStyle != 0
	if braces && null(n) && n.Value == "" {
		n.Value = "null"
	}
	for _, inner := range n.Content {
		spellNulls(inner, braces)
	}
}

func marked(inner *yaml.Node) bool {
	extensions := value(inner, "extensions")
	if null(extensions) || extensions.Kind != yaml.SequenceNode {
		return false
	}
	for _, e := range extensions.Content {
		if scalar(e, "name") == mark {
			return true
		}
	}
	return false
}

func setMark(inner *yaml.Node) {
	if marked(inner) {
		return
	}
	extensions := value(inner, "extensions")
	if null(extensions) || extensions.Kind != yaml.SequenceNode {
		extensions = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	one, what := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	set(what, "managed-by", text("kith"))
	set(one, "extension", what)
	set(one, "name", text(mark))
	extensions.Content = append(extensions.Content, one)
	set(inner, "extensions", extensions)
}

// value returns the value of a key of a mapping; nil when there is none.
func value(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func null(n *yaml.Node) bool { return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// scalar returns the text of a key of a mapping; "" when there is none.
func scalar(mapping *yaml.Node, key string) string {
	if v := value(mapping, key); v != nil && v.Kind == yaml.ScalarNode && !null(v) {
		return v.Value
	}
	return ""
}

func text(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}

func set(mapping *yaml.Node, key string, to *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content[i+1] = to
			return
		}
	}
	mapping.Content = append(mapping.Content, text(key), to)
}

func remove(mapping *yaml.Node, key string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = append(mapping.Content[:i], mapping.Content[i+2:]...)
			return
		}
	}
}
