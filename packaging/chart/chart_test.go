// Package chart tests the Helm chart of Kith: what it lets kithd do, by name, is what kithd does.
package chart

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/local/guards"
	"kith.dev/core/local/installed"
)

// defined gives the names that a template of _helpers.tpl lists.
func defined(t *testing.T, template string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("kith/templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), `{{- define "`+template+`" -}}`)
	list, _, ends := strings.Cut(rest, "{{- end }}")
	if !found || !ends {
		t.Fatalf("no template %s", template)
	}
	for line := range strings.Lines(list) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "- "); is {
			names = append(names, name)
		}
	}
	return names
}

func TestTheChartNamesWhatKithdInstalls(t *testing.T) {
	var definitions []string
	policies := map[string][]string{}
	crds, err := installed.CustomResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range crds {
		definitions = append(definitions, o.GetName())
	}
	for _, o := range append(offloading.Objects(), guards.Objects("")...) {
		kind := strings.TrimSuffix(o.GetObjectKind().GroupVersionKind().Kind, "Binding")
		policies[kind] = append(policies[kind], o.GetName())
	}
	for _, b := range kinds.Bounds() {
		policies["ValidatingAdmissionPolicy"] = append(policies["ValidatingAdmissionPolicy"], b.Name+".kith.dev")
	}
	for template, want := range map[string][]string{
		"kith.definitions": definitions, "kith.mutating": policies["MutatingAdmissionPolicy"], "kith.validating": policies["ValidatingAdmissionPolicy"],
	} {
		slices.Sort(want)
		if got := defined(t, template); !slices.Equal(got, slices.Compact(want)) {
			t.Errorf("%s: %q, kithd has %q", template, got, want)
		}
	}
}

// Wildcards would be rights that nobody reads: no rule has one.
func TestNoRightIsAWildcard(t *testing.T) {
	templates, err := filepath.Glob("kith/templates/*.yaml")
	if err != nil || len(templates) == 0 {
		t.Fatal(err)
	}
	wild := regexp.MustCompile(`(apiGroups|resources|verbs|nonResourceURLs):.*\*`)
	for _, path := range templates {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := wild.Find(text); found != nil {
			t.Errorf("%s: %s", path, found)
		}
	}
}

// A list of its own in kithd's configuration would be another than the one that admission and RBAC have.
func TestKithdIsToldWhichRolesItMayGive(t *testing.T) {
	for path, has := range map[string]string{
		"kith/templates/config.yaml": `"tetherClusterRoles" (default list .Values.tether.clusterRoles)`,
		"kith/templates/tether.yaml": `n.clusterRole in {{ toJson (default list .Values.tether.clusterRoles) }}`,
		"kith/templates/rbac.yaml":   `{{- with .Values.tether.clusterRoles }}`,
	} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), has) {
			t.Errorf("%s does not have %s, %v", path, has, err)
		}
	}
}

// versions are the kinds that a cluster knows, as templates ask for them.
type versions []string

func (v versions) Has(kind string) bool { return slices.Contains(v, kind) }

// notes are what Helm shows once the chart is installed in a cluster that has these SharingPolicies; nil: one that never had Kith.
func notes(t *testing.T, share string, policies []string) string {
	t.Helper()
	type values = map[string]any
	known := versions{"v1/Pod"}
	if policies != nil {
		known = append(known, "kith.dev/v1alpha1/SharingPolicy")
	}
	parsed, err := template.New("NOTES.txt").Funcs(template.FuncMap{ // as Helm has them
		"include": func(string, any) string { return "kith" },
		"default": func(other, given any) any { return cmp.Or(given, other) },
		"list":    func(all ...any) []any { return all },
		"append":  func(all []any, one any) []any { return append(all, one) },
		"has":     func(one any, all []any) bool { return slices.Contains(all, one) },
		"join": func(between string, all []any) string {
			return strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", between)
		},
		"lookup": func(version, kind, _, _ string) (values, error) {
			if !known.Has(version + "/" + kind) {
				return nil, errors.New("unable to get apiresource from unstructured")
			}
			var items []any
			for _, name := range policies {
				items = append(items, values{"metadata": values{"name": name}})
			}
			return values{"items": items}, nil
		},
	}).ParseFiles("kith/templates/NOTES.txt")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := parsed.Execute(&b, values{
		"Values":  values{"clusterName": "corp", "share": share, "service": values{"type": "None"}, "peerAPIPort": 6450, "wireguardPort": 6450},
		"Release": values{"Namespace": "kith-system"}, "Capabilities": values{"APIVersions": known},
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What an earlier installation left behind is offered, whatever the values say.
func TestTheNotesKnowWhatIsOfferedAlready(t *testing.T) {
	const nothing, already, stays, besides = "offers nothing yet", "in the cluster already: ", "stays as it is", "makes one named default"
	for name, c := range map[string]struct {
		share    string
		policies []string
		says     []string
	}{
		"the first of all":               {says: []string{nothing}},
		"the first, with a share":        {share: "20%"},
		"none is left":                   {policies: []string{}, says: []string{nothing}},
		"one is left":                    {policies: []string{"default"}, says: []string{already + "default. "}},
		"two are left":                   {policies: []string{"default", "team"}, says: []string{already + "default, team. "}},
		"one is left, and a share":       {share: "20%", policies: []string{"default"}, says: []string{already + "default. ", stays}},
		"another is left, and a share":   {share: "20%", policies: []string{"team"}, says: []string{already + "team. ", besides}},
		"another is left, without share": {policies: []string{"team"}, says: []string{already + "team. "}},
	} {
		text := notes(t, c.share, c.policies)
		for _, sentence := range []string{nothing, already, stays, besides} {
			want := slices.ContainsFunc(c.says, func(s string) bool { return strings.HasPrefix(s, sentence) })
			if strings.Contains(text, sentence) != want {
				t.Errorf("%s: whether it says %q is not %t:\n%s", name, sentence, want, text)
			}
		}
		for _, s := range c.says {
			if !strings.Contains(text, s) {
				t.Errorf("%s: it does not say %q:\n%s", name, s, text)
			}
		}
		if strings.Contains(text, "<no value>") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// What README.md says of the values is what there is.
func TestTheReadmeHasEveryValue(t *testing.T) {
	readme, err := os.ReadFile("kith/README.md")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("kith/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var path []string
	key := regexp.MustCompile(`^( *)([A-Za-z]+):(.*)$`)
	for line := range strings.Lines(string(values)) {
		m := key.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		depth := len(m[1]) / 2
		path = append(path[:min(depth, len(path))], m[2])
		value, _, _ := strings.Cut(strings.TrimSpace(m[3]), " #")
		if value == "" || strings.HasPrefix(strings.Join(path, "."), "resources.") || strings.HasPrefix(strings.Join(path, "."), "nodes.resources.") {
			continue // what is in it follows
		}
		if !strings.Contains(string(readme), "| `"+strings.Join(path, ".")+"`") {
			t.Errorf("README.md does not have %s", strings.Join(path, "."))
		}
	}
}
