package v1alpha1_test

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"kith.dev/core/api/v1alpha1"
)

func TestTheExampleOfATetherPolicyIsOne(t *testing.T) {
	text, err := os.ReadFile("../../../examples/tether/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policy v1alpha1.TetherPolicy
	if err := yaml.UnmarshalStrict(text, &policy); err != nil {
		t.Fatal(err)
	}
	s := policy.Spec
	if len(s.Namespaces) != 2 || s.Namespaces[1].Name != "sandbox-{laptop}" || s.Namespaces[0].Quota.Pods().Value() != 50 || len(s.Node.Labels) != 1 || len(s.Node.Taints) != 1 || s.AutoAccept {
		t.Errorf("%+v", s)
	}
}
