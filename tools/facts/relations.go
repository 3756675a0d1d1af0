package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	aggregator "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// relations maps an OpenAPI model name to how its fields merge: the schema that server-side apply works with.
// Most of it is published in client-go, in a package that cannot be imported, so its source is read; the two other
// modules publish OpenAPI definitions, which convert to the same form.
func relations() map[string]schema.TypeDef {
	defs := map[string]*spec.Schema{}
	ref := func(path string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + path) }
	for _, get := range []common.GetOpenAPIDefinitions{apiextensions.GetOpenAPIDefinitions, aggregator.GetOpenAPIDefinitions} {
		for name, def := range get(ref) {
			model := def.Schema
			defs[name] = &model
		}
	}
	converted, err := schemaconv.ToSchemaFromOpenAPI(defs, false)
	must(err)
	found := map[string]schema.TypeDef{}
	for _, def := range converted.Types {
		found[def.Name] = def
	}

	published, err := typed.NewParser(typed.YAMLObject(applySchema()))
	must(err)
	typesOf := map[string]schema.TypeDef{}
	for _, def := range published.Schema.Types {
		typesOf[def.Name] = def
	}
	maps.Copy(found, typesOf)
	return found
}

// applySchema is the text of client-go's schema of the apply configurations.
func applySchema() string {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	must(err)
	path := filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations", "internal", "internal.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	must(err)
	text := ""
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || spec.Names[0].Name != "schemaYAML" {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok {
			return true
		}
		text, err = strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
		must(err)
		return false
	})
	if text == "" {
		must(fmt.Errorf("no schemaYAML in %s", path))
	}
	return text
}
