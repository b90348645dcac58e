// Package mcs runs upstream's conformance suite of Multi-Cluster Services against clusters that are there: -kubeconfig and -contexts say which.
package mcs

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	_ "sigs.k8s.io/mcs-api/conformance" // its tests, and its flags
)

func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Multi-Cluster Services")
}
