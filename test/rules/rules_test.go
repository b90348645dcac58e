package rules

import (
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	policies "kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/guards"
	"kith.dev/core/local/installed"
)

const page = "../../docs/guards.md"

func TestThePageHasTheTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "\n"+Table()) {
		return
	}
	before, rest, found := strings.Cut(string(text), "| of | rule |")
	if !found {
		t.Fatal("docs/guards.md has no table")
	}
	if os.Getenv("KITH_UPDATE") == "" {
		t.Fatal("the table in docs/guards.md is not that of this package (KITH_UPDATE=1 writes it)")
	}
	_, after, _ := strings.Cut(rest, "\n\n")
	if err := os.WriteFile(page, []byte(before+Table()+"\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// byKithd are rules on what kithd writes; people answer requests, which TestWhatKithRefusesKubectlRefuses does by itself.
var byKithd = []string{
	"a contract", "signed bytes change", "an OffloadedPod belongs to", "the ID of a peer never changes", "a request is answered", "nothing can be granted",
}

// A rule of an admission policy, or of a schema, that no line of the table tries.
func TestEveryRuleIsTried(t *testing.T) {
	tried := func(by, message string) {
		for _, r := range All {
			if r.By == by && r.Refusal == message {
				return
			}
		}
		for _, prefix := range byKithd {
			if strings.HasPrefix(message, prefix) {
				return
			}
		}
		t.Errorf("%s: no line of the table tries %q", by, message)
	}
	for _, o := range guards.Objects(ID) {
		if p, is := o.(*admissionv1.ValidatingAdmissionPolicy); is {
			for _, v := range p.Spec.Validations {
				tried(p.Name, v.Message)
			}
		}
	}
	definitions, err := installed.CustomResources()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(s *apiextensionsv1.JSONSchemaProps)
	walk = func(s *apiextensionsv1.JSONSchemaProps) {
		for _, v := range s.XValidations {
			tried("", v.Message)
		}
		for _, p := range s.Properties {
			walk(&p)
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(s.AdditionalProperties.Schema)
		}
	}
	for _, o := range definitions {
		for _, v := range o.(*apiextensionsv1.CustomResourceDefinition).Spec.Versions {
			walk(v.Schema.OpenAPIV3Schema)
		}
	}
}

// What the page says can be applied is read by the API server's rules, strictly, and taken: the story of the lab that tries the rules applies them, too.
func TestTheCookbookCanBeApplied(t *testing.T) {
	all, err := Cookbook()
	if err != nil || len(all) != 14 {
		t.Fatalf("%d policies, %v", len(all), err)
	}
	for _, text := range all {
		if strings.Contains(text, "kind: PeeringPolicy\n") {
			var policy v1alpha1.PeeringPolicy
			if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
			continue
		}
		var policy v1alpha1.SharingPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		if err := policies.Validate(&policy); err != nil {
			t.Errorf("%s: %v", policy.Name, err)
		}
	}
}
