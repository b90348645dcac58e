// Package chart tests the Helm chart of Kith: what it lets kithd do, by name, is what kithd does.
package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/installed"
	"kith.dev/core/kinds"
	"kith.dev/core/offloading"
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
	for _, o := range offloading.Objects() {
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
