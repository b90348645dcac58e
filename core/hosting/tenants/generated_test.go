package tenants

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"kith.dev/core/hosting/door"
)

var update = flag.Bool("update", false, "write the generated objects to testdata")

// What consumers may do here is made from the table of kinds: a reviewer sees in testdata what a change of the table means.
func TestWhatConsumersMayDoIsAsWrittenDown(t *testing.T) {
	policies := door.Policies()
	slices.SortFunc(policies, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetObjectKind().GroupVersionKind().Kind, b.GetObjectKind().GroupVersionKind().Kind))
	})
	for file, objects := range map[string]any{
		"role.yaml":           tenantClusterRole(true),
		"role-unbounded.yaml": tenantClusterRole(false),
		"policies.yaml":       policies,
		"quota.yaml":          quotaFor(list("cpu", "2", "pods", "7", "storage", "5Gi")),
	} {
		got, err := yaml.Marshal(objects)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is not as it was (%v); if it is meant, run go test with -update and look at the difference. Now it is\n%s", path, err, got)
		}
	}
}
