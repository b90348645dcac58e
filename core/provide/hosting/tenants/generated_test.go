package tenants

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"kith.dev/core/agree/kinds"
)

var update = flag.Bool("update", false, "write the generated objects to testdata")

// What consumers may do here is made from the table of kinds: a reviewer sees in testdata what a change of the table means.
func TestWhatConsumersMayDoIsAsWrittenDown(t *testing.T) {
	all := policies()
	slices.SortFunc(all, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetObjectKind().GroupVersionKind().Kind, b.GetObjectKind().GroupVersionKind().Kind))
	})
	for file, objects := range map[string]any{
		"role.yaml":           tenantClusterRole(true),
		"role-unbounded.yaml": tenantClusterRole(false),
		"policies.yaml":       all,
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

// A policy that lets through what it cannot judge, or that is not bound, holds nobody.
func TestEveryPolicyDenies(t *testing.T) {
	rules, all := 0, policies()
	for i := 0; i < len(all); i += 2 {
		p, binding := all[i].(*admissionv1.ValidatingAdmissionPolicy), all[i+1].(*admissionv1.ValidatingAdmissionPolicyBinding)
		rules += len(p.Spec.Validations)
		if *p.Spec.FailurePolicy != "Fail" || binding.Spec.PolicyName != p.Name || !slices.Contains(binding.Spec.ValidationActions, "Deny") {
			t.Errorf("%s: %+v, %+v", p.Name, p.Spec, binding.Spec)
		}
	}
	for _, b := range kinds.Bounds() {
		rules -= len(b.Rules)
	}
	if rules != 0 {
		t.Errorf("%d rules more than in the table", rules)
	}
}
